#pragma once
/// @file
/// What the CPU device tells the thread sanitizer. The machinery of streams (queues, counters)
/// is taken out of its sight, and the order that the CUDA semantics promise is put in its place:
/// call -> work, record -> wait, record -> synchronize. Without the sanitizer all of it is empty.

#if defined(__SANITIZE_THREAD__)
#define MEGATRAIN_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define MEGATRAIN_THREAD_SANITIZER 1
#endif
#endif

#if defined(MEGATRAIN_THREAD_SANITIZER)
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void AnnotateIgnoreSyncBegin(const char* file, int line);
void AnnotateIgnoreSyncEnd(const char* file, int line);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_read_range(void* address, unsigned long bytes);
void __tsan_write_range(void* address, unsigned long bytes);
}
#endif

namespace megatrain {

#if defined(MEGATRAIN_THREAD_SANITIZER)

/// While it lives, this thread's accesses, locks and atomics create no order and no report.
class UnorderedSection {
 public:
  UnorderedSection() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    AnnotateIgnoreSyncBegin(__FILE__, __LINE__);
  }
  ~UnorderedSection() {
    AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
  UnorderedSection(const UnorderedSection&) = delete;
  UnorderedSection& operator=(const UnorderedSection&) = delete;
};

/// What this thread did so far comes before what a thread does after take_order(token).
inline void give_order(void* token) { __tsan_release(token); }
inline void take_order(void* token) { __tsan_acquire(token); }

#else

class [[maybe_unused]] UnorderedSection {
 public:
  UnorderedSection() = default;
  ~UnorderedSection() = default;
  UnorderedSection(const UnorderedSection&) = delete;
  UnorderedSection& operator=(const UnorderedSection&) = delete;
};
inline void give_order(void* /*token*/) {}
inline void take_order(void* /*token*/) {}

#endif

}  // namespace megatrain
