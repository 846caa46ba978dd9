#pragma once
/// @file
/// Key-value stores for tests: one for threads, one for processes.

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "parallel/key_value_store.h"

namespace megatrain {

class MapStore final : public KeyValueStore {
 public:
  void set(const std::string& key, std::string_view value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }
  std::optional<std::string> get(const std::string& key,
                                 std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) return {};
    return values_.at(key);
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    values_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

/// Another store, and how many requests came to it.
class CountingStore final : public KeyValueStore {
 public:
  explicit CountingStore(std::shared_ptr<KeyValueStore> inner) : inner_(std::move(inner)) {}
  void set(const std::string& key, std::string_view value) override {
    ++requests_;
    inner_->set(key, value);
  }
  std::optional<std::string> get(const std::string& key,
                                 std::chrono::milliseconds timeout) override {
    ++requests_;
    return inner_->get(key, timeout);
  }
  void set_all(std::span<const Entry> entries) override {
    ++requests_;
    inner_->set_all(entries);
  }
  Values get_all(std::span<const std::string> keys, std::chrono::milliseconds timeout) override {
    ++requests_;
    return inner_->get_all(keys, timeout);
  }
  [[nodiscard]] int requests() const { return requests_; }

 private:
  const std::shared_ptr<KeyValueStore> inner_;
  std::atomic<int> requests_ = 0;
};

/// A file a key, in a folder that all processes see.
class FolderStore final : public KeyValueStore {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}
  void set(const std::string& key, std::string_view value) override {
    const auto path = path_of(key);
    auto aside = path;
    aside += ".new";
    std::ofstream(aside, std::ios::binary) << value;
    std::filesystem::rename(aside, path);
  }
  std::optional<std::string> get(const std::string& key,
                                 std::chrono::milliseconds timeout) override {
    const auto end = std::chrono::steady_clock::now() + timeout;
    for (;;) {
      if (std::ifstream file(path_of(key), std::ios::binary); file)
        return std::string(std::istreambuf_iterator<char>(file), {});
      if (std::chrono::steady_clock::now() >= end) return {};
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  [[nodiscard]] std::filesystem::path path_of(std::string key) const {
    for (char& c : key)
      if (c == '/' || c == ' ') c = '_';
    return folder_ / key;
  }
  std::filesystem::path folder_;
};

}  // namespace megatrain
