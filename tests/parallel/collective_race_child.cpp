// Collectives of two ranks under the thread sanitizer, for collective_race_test.
//   collective_race_child SCHEDULE

#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/device/cpu/cpu_device.h"
#include "parallel/local/local_communicator.h"

namespace {

using namespace megatrain;

constexpr Index kCount = 4096;

/// What one rank does with its streams.
void rank(std::string_view schedule, Communicator& communicator) {
  const auto device = make_cpu_device({.threads = 1});
  const auto compute = device->make_stream("compute");
  const auto collectives = device->make_stream("collectives");
  const auto copies = device->make_stream("copies");
  const auto filled = device->make_event();
  const auto gathered = device->make_event();
  const auto summed = device->make_event();
  const auto copied = device->make_event();
  std::vector<float> slice(kCount);
  std::vector<float> whole(static_cast<std::size_t>(2 * kCount));
  std::vector<float> copy(whole.size());

  for (int round = 0; round < 3; ++round) {
    // The slice of this round is free once the gather of the last one is over.
    if (round > 0 && schedule != "race: the slice is written during the gather")
      compute->wait(*gathered);
    compute->fill(slice.data(), static_cast<std::uint8_t>(round), kCount * 4);
    compute->record(*filled);
    if (schedule != "race: the gather does not wait for the slice") collectives->wait(*filled);
    if (round > 0) collectives->wait(*copied);
    communicator.all_gather(*collectives, slice.data(), whole.data(), kCount, DType::f32);
    collectives->record(*gathered);
    float* own = whole.data() + communicator.rank() * kCount;
    communicator.reduce_scatter(*collectives, whole.data(), own, kCount);
    collectives->record(*summed);
    // The host's agreements order nothing on the streams.
    (void)communicator.max(round);
    if (schedule != "race: the sum is read too early") copies->wait(*summed);
    copies->copy(copy.data(), whole.data(), 2 * kCount * 4);
    copies->record(*copied);
  }
  compute->synchronize();
  collectives->synchronize();
  copies->synchronize();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string_view schedule = argv[1];
  auto ends = make_local_communicators("line", 2, std::chrono::seconds(60));
  std::thread other([&] { rank(schedule, *ends[1]); });
  rank(schedule, *ends[0]);
  other.join();
}
