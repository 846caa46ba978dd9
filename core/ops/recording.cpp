#include "core/ops/recording.h"

#include <type_traits>
#include <utility>

namespace megatrain::ops {

namespace {

struct Recorder final : OpState {
  explicit Recorder(std::vector<AnyOp>& into) : calls(into) {}
  std::vector<AnyOp>& calls;
};

template <class Op>
void write_down(OpState& state, Stream& /*stream*/, const Op& op) {
  static_cast<Recorder&>(state).calls.emplace_back(op);
}

template <class... Op>
OpTable recording_table(std::tuple<OpFunction<Op>...> /*signatures*/) {
  return {&write_down<Op>...};
}

class RecordingStream final : public Stream {
 public:
  explicit RecordingStream(std::vector<AnyOp>& into) : calls_(into) {}
  void copy(void* destination, const void* source, std::int64_t bytes) override {
    calls_.emplace_back(DeviceCopy{destination, source, bytes});
  }
  [[nodiscard]] Device& device() override { refuse(); }
  void record(Event& /*event*/) override { refuse(); }
  void wait(Event& /*event*/) override { refuse(); }
  void fill(void* /*destination*/, std::uint8_t /*value*/, std::int64_t /*bytes*/) override {
    refuse();
  }
  void synchronize() override {}

 private:
  [[noreturn]] static void refuse() {
    throw LogicError("internal error: a stream that records knows ops and copies only");
  }
  std::vector<AnyOp>& calls_;
};

}  // namespace

std::vector<AnyOp> record(const std::function<void(const Ops&, Stream&)>& enqueue) {
  std::vector<AnyOp> calls;
  const Ops ops(
      recording_table(OpTable{}),
      [](OpState&, const AttentionShape&, AttentionBackend) { return std::string(); },
      std::make_unique<Recorder>(calls));
  RecordingStream stream(calls);
  enqueue(ops, stream);
  return calls;
}

void replay(const Ops& ops, Stream& stream, const AnyOp& op) {
  std::visit(
      [&]<class Op>(const Op& arguments) {
        if constexpr (std::is_same_v<Op, DeviceCopy>)
          stream.copy(arguments.destination, arguments.source, arguments.bytes);
        else
          ops.run(stream, arguments);
      },
      op);
}

}  // namespace megatrain::ops
