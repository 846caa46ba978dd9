// Runs one small schedule on two streams of the CPU device and exits. race_test runs it under the
// thread sanitizer, which ends it with its own exit code when the schedule has a race.

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/device/cpu/cpu_device.h"

namespace {

using namespace megatrain;

struct Fixture {
  std::unique_ptr<Device> device = make_cpu_device({.threads = 2});
  std::unique_ptr<Stream> a = device->make_stream("a");
  std::unique_ptr<Stream> b = device->make_stream("b");
  std::unique_ptr<Event> event = device->make_event();
  std::unique_ptr<DeviceMemory> x = device->allocate(kBytes);
  std::unique_ptr<DeviceMemory> y = device->allocate(kBytes);
  std::unique_ptr<DeviceMemory> z = device->allocate(kBytes);

  static constexpr Index kBytes = 4096;

  void copy_to_y(Stream& stream) { stream.copy(y->data(), x->data(), kBytes); }
  void copy_from_y(Stream& stream) { stream.copy(z->data(), y->data(), kBytes); }
  static void run(Stream& stream, std::function<void()> work) {
    dynamic_cast<CpuStream&>(stream).enqueue(std::move(work));
  }
  static void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }
  void finish() {
    a->synchronize();
    b->synchronize();
  }
};

const std::map<std::string, void (*)(Fixture&)> kSchedules = {
    {"race: two copies, nothing between",
     [](Fixture& f) {
       f.copy_to_y(*f.a);
       f.copy_to_y(*f.b);
     }},
    {"race: the first has long ended",
     [](Fixture& f) {
       f.copy_to_y(*f.a);
       f.pause();
       f.copy_to_y(*f.b);
     }},
    {"race: both queues were used since",
     [](Fixture& f) {
       // The queues' own locks pass from the first stream to the host to the second.
       f.copy_to_y(*f.a);
       f.pause();
       Fixture::run(*f.a, [] {});
       f.copy_from_y(*f.b);
     }},
    {"race: the streams have met before",
     [](Fixture& f) {
       f.a->record(*f.event);
       f.b->wait(*f.event);
       f.copy_to_y(*f.a);
       f.pause();
       f.copy_from_y(*f.b);
     }},
    {"race: recorded too early",
     [](Fixture& f) {
       f.a->record(*f.event);
       f.copy_to_y(*f.a);
       f.pause();
       f.b->wait(*f.event);
       f.copy_from_y(*f.b);
     }},
    {"race: the wait saw the record before",
     [](Fixture& f) {
       f.a->record(*f.event);
       f.b->wait(*f.event);
       f.copy_to_y(*f.a);
       f.a->record(*f.event);
       f.pause();
       f.copy_from_y(*f.b);
     }},
    {"race: other work was waited for, after this was enqueued",
     [](Fixture& f) {
       Fixture::run(*f.b, [] { Fixture::pause(); });
       f.copy_from_y(*f.b);
       f.copy_to_y(*f.a);
       f.a->synchronize();
       // By now the host knows that a's copy has ended, but b's copy was not told.
       Fixture::run(*f.b, [] {});
     }},
    {"race: fill and copy",
     [](Fixture& f) {
       f.a->fill(f.y->data(), 0, Fixture::kBytes);
       f.pause();
       f.copy_from_y(*f.b);
     }},
    {"race: announced rows of library code",
     [](Fixture& f) {
       Fixture::run(*f.a, [&f] { announce_write(f.y->data(), 4, 16, 1024); });
       f.pause();
       Fixture::run(*f.b, [&f] { announce_read(f.y->data() + 3 * 1024 + 8, 8); });
     }},
    {"race: pool threads",
     [](Fixture& f) {
       const auto loop = [](Stream& stream, std::byte* data) {
         auto& own = dynamic_cast<CpuStream&>(stream);
         own.enqueue([&own, data] {
           own.pool().for_each(16, [&](Index piece) { data[piece * 64] = std::byte{1}; });
         });
       };
       loop(*f.a, f.y->data());
       f.pause();
       loop(*f.b, f.y->data());
     }},
    {"race: the host reads too early",
     [](Fixture& f) {
       f.copy_to_y(*f.a);
       f.pause();
       if (f.y->data()[0] != std::byte{0}) f.x->data()[0] = std::byte{1};
     }},

    {"ordered: by an event",
     [](Fixture& f) {
       f.copy_to_y(*f.a);
       f.a->record(*f.event);
       f.b->wait(*f.event);
       f.copy_from_y(*f.b);
     }},
    {"ordered: by the host",
     [](Fixture& f) {
       f.copy_to_y(*f.a);
       f.a->synchronize();
       f.copy_from_y(*f.b);
     }},
    {"ordered: by an event that the host waits for",
     [](Fixture& f) {
       f.x->data()[0] = std::byte{1};
       f.copy_to_y(*f.a);
       f.a->record(*f.event);
       f.event->synchronize();
       f.y->data()[0] = std::byte{2};
       f.copy_from_y(*f.b);
     }},
    {"ordered: by an event seen as reached",
     [](Fixture& f) {
       f.copy_to_y(*f.a);
       f.a->record(*f.event);
       while (!f.event->reached()) std::this_thread::yield();
       f.y->data()[0] = std::byte{2};
     }},
    {"ordered: a ring of two buffers",
     [](Fixture& f) {
       const auto ready = f.device->make_event();
       for (int step = 0; step < 200; ++step) {
         f.copy_to_y(*f.a);
         f.a->record(*ready);
         f.b->wait(*ready);
         f.copy_from_y(*f.b);
         f.b->record(*f.event);
         f.a->wait(*f.event);
       }
     }},
    {"ordered: apart rows",
     [](Fixture& f) {
       Fixture::run(*f.a, [&f] { announce_write(f.y->data(), 4, 16, 1024); });
       Fixture::run(*f.b, [&f] { announce_write(f.y->data() + 16, 4, 1008, 1024); });
     }},
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || !kSchedules.contains(argv[1])) return 3;
  Fixture fixture;
  kSchedules.at(argv[1])(fixture);
  fixture.finish();
  return 0;
}
