#include "tests/parallel/two_hosts.h"

#include <unistd.h>

#include "tests/parallel/started.h"

namespace megatrain::parallel {

namespace {

bool system(const std::string& command) {
  return Started({"sh", "-c", command + " > /dev/null 2>&1"}).wait() == 0;
}

}  // namespace

TwoHosts::TwoHosts()
    : first_("mta" + std::to_string(::getpid())), second_("mtb" + std::to_string(::getpid())) {
  const std::string& a = first_;
  const std::string& b = second_;
  up_ = system("ip netns add " + a + " && ip netns add " + b + " && ip link add " + a + " netns " +
               a + " type veth peer name " + b + " netns " + b) &&
        system("ip -n " + a + " addr add " + kAddress + "/24 dev " + a + " && ip -n " + b +
               " addr add 192.168.213.2/24 dev " + b + " && ip -n " + a + " link set " + a +
               " up && ip -n " + b + " link set " + b + " up && ip -n " + a +
               " link set lo up && ip -n " + b + " link set lo up");
}

TwoHosts::~TwoHosts() {
  system("ip netns del " + first_);
  system("ip netns del " + second_);
}

std::vector<std::string> TwoHosts::on(int host, std::vector<std::string> command) const {
  command.insert(command.begin(), {"ip", "netns", "exec", host == 0 ? first_ : second_});
  return command;
}

bool TwoHosts::unplug() const {
  return system("ip -n " + second_ + " link set " + second_ + " down");
}

}  // namespace megatrain::parallel
