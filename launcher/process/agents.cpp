#include "launcher/process/agents.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

namespace megatrain::launcher {

namespace {

std::string to_text(const Notice& notice) {
  const std::string text = fmt::format("{} {} {} {}\n{}", static_cast<int>(notice.kind),
                                       notice.generation, notice.rank, notice.number, notice.text);
  return text.substr(0, parallel::kMaxExchanged);
}

std::optional<Notice> from_text(int node, const std::string& text) {
  std::istringstream in(text);
  int kind = 0;
  Notice notice{};
  if (!(in >> kind >> notice.generation >> notice.rank >> notice.number) || kind < 0 ||
      kind > static_cast<int>(Notice::Kind::ended))
    return std::nullopt;
  in.get();
  notice.text.assign(std::istreambuf_iterator<char>(in), {});
  notice.kind = static_cast<Notice::Kind>(kind);
  notice.node = node;
  return notice;
}

}  // namespace

Agents::Agents(const parallel::NodePlace& place, std::uint64_t configuration,
               parallel::Milliseconds limit, Logger log)
    : limit_(limit) {
  if (place.nodes == 1) return;
  parallel::ProcessPlace here;
  here.rank = here.node = place.node;
  here.world = here.nodes = place.nodes;
  here.run_id = place.run_id + "/nodes";  // a rank that comes here is told so
  here.rendezvous = place.rendezvous;
  here.source = place.source;
  rendezvous_ = std::make_unique<parallel::Rendezvous>(
      here,
      parallel::RendezvousOptions{.noun = "node",
                                  .configuration = configuration,
                                  .join_limit = limit,
                                  .on_trouble = [this](const parallel::Trouble&) { waker_.wake(); },
                                  .on_post =
                                      [this](int node, const std::string& text) {
                                        if (auto notice = from_text(node, text))
                                          deliver(*std::move(notice));
                                      },
                                  .log = std::move(log)});
}

std::vector<std::string> Agents::exchange(const std::string& name, const std::string& value) {
  if (!rendezvous_) return {value};
  return rendezvous_->exchange(name, value, limit_);
}

void Agents::post(const Notice& notice) {
  if (!rendezvous_) return deliver(notice);
  try {
    rendezvous_->post(to_text(notice));
  } catch (const parallel::RankLost&) {
    waker_.wake();  // nobody hears it; trouble() says why
  }
}

std::optional<Notice> Agents::take() {
  const std::lock_guard lock(mutex_);
  if (notices_.empty()) return std::nullopt;
  Notice notice = std::move(notices_.front());
  notices_.pop_front();
  return notice;
}

std::optional<parallel::Trouble> Agents::trouble() const {
  return rendezvous_ ? rendezvous_->trouble() : std::nullopt;
}

void Agents::deliver(Notice notice) {
  const std::lock_guard lock(mutex_);
  notices_.push_back(std::move(notice));
  waker_.wake();
}

}  // namespace megatrain::launcher
