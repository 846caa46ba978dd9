#include "tests/parallel/pretend_nccl.h"

#include <nccl.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/device/cpu/cpu_device.h"

namespace megatrain::testing {
namespace {

/// Everything is rare and small: one lock for all that the ranks share.
std::mutex mutex;
std::condition_variable changed;
int identifiers = 0;
std::map<int, int> running;  // collectives of a GPU that have begun and not left
thread_local int current = 0;

/// One collective of a group.
struct Meeting {
  std::map<int, const std::byte*> data;  // of those that have come, by rank
  int read = 0;                          // ranks that need the others' data no more
};

struct Group {
  std::vector<int> here;
  std::map<std::uint64_t, Meeting> meetings;
};
std::map<int, std::shared_ptr<Group>> groups;

class PretendStream final : public CudaStream {
 public:
  PretendStream(std::unique_ptr<Stream> inner, Device& device)
      : inner_(std::move(inner)), device_(device) {}
  [[nodiscard]] CUstream_st* handle() const override {
    return reinterpret_cast<CUstream_st*>(inner_.get());
  }
  Device& device() override { return device_; }
  void record(Event& event) override { inner_->record(event); }
  void wait(Event& event) override { inner_->wait(event); }
  void copy(void* destination, const void* source, std::int64_t bytes) override {
    inner_->copy(destination, source, bytes);
  }
  void fill(void* destination, std::uint8_t value, std::int64_t bytes) override {
    inner_->fill(destination, value, bytes);
  }
  void synchronize() override { inner_->synchronize(); }

 private:
  const std::unique_ptr<Stream> inner_;
  Device& device_;
};

class PretendGpu final : public CudaDevice {
 public:
  explicit PretendGpu(int ordinal) : inner_(make_cpu_device({.threads = 1})) {
    properties_.ordinal = ordinal;
    properties_.multiprocessors = 8;
    info_ = inner_->info();
    info_.kind = DeviceKind::cuda;
  }
  const DeviceInfo& info() const override { return info_; }
  const CudaProperties& properties() const override { return properties_; }
  void make_current() const override { current = properties_.ordinal; }
  ReserveSource reserve_source() const override { return ReserveSource::runtime_info; }
  std::unique_ptr<Stream> make_stream(std::string_view name) override {
    return std::make_unique<PretendStream>(inner_->make_stream(name), *this);
  }
  std::unique_ptr<Event> make_event() override { return inner_->make_event(); }
  std::unique_ptr<TimedEvent> make_timed_event() override { return inner_->make_timed_event(); }
  std::unique_ptr<DeviceMemory> allocate(std::int64_t bytes) override {
    return inner_->allocate(bytes);
  }
  std::unique_ptr<HostRegistration> register_host(void* data, std::int64_t bytes) override {
    return inner_->register_host(data, bytes);
  }
  std::int64_t free_bytes() const override { return inner_->free_bytes(); }
  std::int64_t reserve_bytes() const override { return 0; }

 private:
  const std::unique_ptr<Device> inner_;
  CudaProperties properties_;
  DeviceInfo info_;
};

}  // namespace
}  // namespace megatrain::testing

using namespace megatrain;
using namespace megatrain::testing;

struct ncclComm {
  ncclComm(int its_rank, int its_size, int its_device)
      : rank(its_rank), size(its_size), device(its_device) {}
  const int rank, size, device;
  std::shared_ptr<Group> group;
  // Under the lock:
  std::uint64_t calls = 0;
  bool aborted = false;
  int inside = 0;  // of its collectives, on streams
  ncclResult_t state = ncclSuccess;
  std::jthread worker;

  /// Does something behind the caller's back.
  ncclResult_t behind(std::function<void()> act) {
    {
      const std::lock_guard lock(mutex);
      state = ncclInProgress;
    }
    worker = std::jthread([this, act = std::move(act)] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
      act();
      const std::lock_guard lock(mutex);
      if (state == ncclInProgress) state = ncclSuccess;
    });
    return ncclInProgress;
  }
};

namespace {

std::vector<ncclComm*> all;  // under the lock
thread_local int grouped = 0;
thread_local std::vector<ncclComm*> dying;

void reclaim(ncclComm* comm) {
  comm->worker.join();
  std::unique_lock lock(mutex);
  // The driver frees no memory while a kernel runs, whosever it is.
  changed.wait(lock, [&] { return comm->inside == 0 && running[comm->device] == 0; });
  std::erase(all, comm);
  lock.unlock();
  delete comm;
}

using Parts = std::vector<const std::byte*>;

/// @param make  what this rank gets of the parts of all
ncclResult_t collective(ncclComm* comm, cudaStream_t on, const void* send, void* receive,
                        std::function<std::vector<std::byte>(const Parts&)> make) {
  return comm->behind([=] {
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(mutex);
      number = ++comm->calls;
      ++comm->inside;
    }
    cpu_stream(*reinterpret_cast<Stream*>(on)).enqueue([=] {
      std::unique_lock lock(mutex);
      ++running[comm->device];
      Meeting& meeting = comm->group->meetings[number];
      meeting.data[comm->rank] = static_cast<const std::byte*>(send);
      changed.notify_all();
      changed.wait(lock, [&] {
        return comm->aborted || meeting.data.size() == static_cast<std::size_t>(comm->size);
      });
      if (!comm->aborted) {
        Parts parts;
        for (const auto& [rank, data] : meeting.data) parts.push_back(data);
        const std::vector<std::byte> result = make(parts);
        ++meeting.read;
        changed.notify_all();
        changed.wait(lock, [&] { return comm->aborted || meeting.read == comm->size; });
        std::memcpy(receive, result.data(), result.size());
      }
      --comm->inside;
      --running[comm->device];
      changed.notify_all();
    });
  });
}

std::size_t bytes_of(ncclDataType_t type) {
  return type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 8;
}

std::vector<std::byte> sum(const Parts& parts, std::size_t first, std::size_t count) {
  std::vector<float> result(count, 0.0F);
  // Not the order of the ranks.
  for (std::size_t part = parts.size(); part-- > 0;)
    for (std::size_t i = 0; i < count; ++i)
      result[i] += reinterpret_cast<const float*>(parts[part])[first + i];
  std::vector<std::byte> bytes(count * 4);
  std::memcpy(bytes.data(), result.data(), bytes.size());
  return bytes;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::lock_guard lock(mutex);
  std::memset(id->internal, 0, sizeof id->internal);
  ++identifiers;
  std::memcpy(id->internal, &identifiers, sizeof identifiers);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0 || config->maxCTAs != 2) return ncclInvalidArgument;
  int identifier = 0;
  std::memcpy(&identifier, id.internal, sizeof identifier);
  auto* own = new ncclComm(rank, size, current);
  {
    const std::lock_guard lock(mutex);
    auto& group = groups[identifier];
    if (!group) group = std::make_shared<Group>();
    own->group = group;
    all.push_back(own);
  }
  *comm = own;
  return own->behind([own, size] {
    std::unique_lock lock(mutex);
    own->group->here.push_back(own->rank);
    changed.notify_all();
    changed.wait(lock, [&] {
      return own->aborted || own->group->here.size() >= static_cast<std::size_t>(size);
    });
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(mutex);
  *state = comm->state;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  return comm->behind([comm] {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return comm->inside == 0; });
  });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  reclaim(comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(mutex);
    comm->aborted = true;
    changed.notify_all();
  }
  if (grouped > 0)
    dying.push_back(comm);
  else
    reclaim(comm);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++grouped;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  --grouped;
  for (ncclComm* comm : dying) reclaim(comm);
  dying.clear();
  return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclRemoteError ? "remote process exited" : "another error";
}
const char* ncclGetLastError(ncclComm_t) { return "pretended"; }

ncclResult_t ncclAllGather(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t on) {
  const std::size_t bytes = count * bytes_of(type);
  return collective(comm, on, send, receive, [bytes](const Parts& parts) {
    std::vector<std::byte> result;
    for (const std::byte* part : parts) result.insert(result.end(), part, part + bytes);
    return result;
  });
}

ncclResult_t ncclReduceScatter(const void* send, void* receive, std::size_t count, ncclDataType_t,
                               ncclRedOp_t, ncclComm_t comm, cudaStream_t on) {
  const std::size_t first = count * static_cast<std::size_t>(comm->rank);
  return collective(comm, on, send, receive,
                    [=](const Parts& parts) { return sum(parts, first, count); });
}

ncclResult_t ncclAllReduce(const void* send, void* receive, std::size_t count, ncclDataType_t,
                           ncclRedOp_t, ncclComm_t comm, cudaStream_t on) {
  return collective(comm, on, send, receive,
                    [=](const Parts& parts) { return sum(parts, 0, count); });
}

ncclResult_t ncclBroadcast(const void* send, void* receive, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t on) {
  const std::size_t bytes = count * bytes_of(type);
  return collective(comm, on, send, receive, [=](const Parts& parts) {
    const std::byte* from = parts[static_cast<std::size_t>(root)];
    return std::vector<std::byte>(from, from + bytes);
  });
}

}  // extern "C"

namespace megatrain::testing {

std::unique_ptr<Device> make_pretend_gpu(int ordinal) {
  return std::make_unique<PretendGpu>(ordinal);
}

void pretend_remote_error(int ordinal) {
  const std::lock_guard lock(mutex);
  for (ncclComm* comm : all)
    if (comm->device == ordinal) comm->state = ncclRemoteError;
}

}  // namespace megatrain::testing
