#pragma once
/// @file
/// Two network namespaces, as hosts of their own with a cable between them.

#include <string>
#include <vector>

namespace megatrain::parallel {

class TwoHosts {
 public:
  TwoHosts();
  ~TwoHosts();
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  /// Whether they are there: making them takes root.
  [[nodiscard]] bool up() const { return up_; }
  /// Of host 0. Above 127: of two addresses Gloo connects from the higher one to the lower, and one
  /// that nobody can reach shall not go unnoticed.
  static constexpr const char* kAddress = "192.168.213.1";
  /// A command as one that runs on host 0 or 1.
  [[nodiscard]] std::vector<std::string> on(int host, std::vector<std::string> command) const;
  /// Takes the cable away. Connections stay, and nothing comes through. @returns whether it is so
  [[nodiscard]] bool unplug() const;

 private:
  std::string first_, second_;
  bool up_ = false;
};

}  // namespace megatrain::parallel
