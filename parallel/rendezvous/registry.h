#pragma once
/// @file
/// What a rendezvous knows and answers, without sockets and clocks: messages and times go in,
/// messages come out.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/rendezvous/socket.h"
#include "parallel/rendezvous/wire.h"

namespace megatrain::parallel {

/// Who may come.
struct Party {
  std::string run_id;
  int world = 1;
  int generation = 0;
  /// A hash of what all ranks must have in common. Not given: what the first rank to come has.
  std::optional<std::uint64_t> configuration;
  std::string noun = "rank";  ///< what is counted, for messages
};

/// What has ended the work of all.
struct Trouble {
  int rank = -1;       ///< whose fault it is; -1: nobody's who is counted
  std::string reason;  ///< names it
};

class Registry {
 public:
  /// Something to send to the connection `peer`.
  struct Output {
    int peer;
    std::string bytes;
    bool close = false;  ///< after it is sent
  };

  /// @param silence  a rank that nothing is heard of for so long is lost
  Registry(Party party, Milliseconds silence, Clock::time_point now);

  /// Takes the first message of a connection. @returns whether it is a rank's now; if not, it is
  ///   refused, with the reason in what goes out (nothing goes out to who does not speak our
  ///   language) and in refusals()
  bool admit(int peer, std::string_view hello, Clock::time_point now);
  /// Takes a later message. @throws WireError for one that a rank never sends
  void receive(int peer, std::string_view message, Clock::time_point now);
  /// The connection is gone, or has to go.
  void lose(int peer, std::string_view reason);
  /// Ends what has waited too long and finds who is silent.
  void tick(Clock::time_point now);
  /// When tick() has to be called next.
  [[nodiscard]] Clock::time_point next_tick() const;

  std::vector<Output> take_outputs();
  /// Words about connections that were refused since the last call.
  std::vector<std::string> take_refusals();
  /// What ended this generation's work, if something did.
  [[nodiscard]] const std::optional<Trouble>& trouble() const { return trouble_; }
  /// Ranks that have come and not left.
  [[nodiscard]] int present() const;

 private:
  enum class State : std::uint8_t { absent, present, left, lost };
  struct Member {
    State state = State::absent;
    int peer = -1;
    std::string host, doing, refusal;
    std::uint64_t process = 0;
    std::uint64_t configuration = 0;
    Clock::time_point heard;
    std::optional<std::uint64_t> standing;  ///< its answer to the inquiry
    std::size_t waits = 0;
  };
  struct Wait {
    int rank;
    std::uint32_t request;
    Clock::time_point deadline;
  };
  /// A request for keys that are not all there yet.
  struct Read {
    Wait wait;
    std::vector<std::string> keys;
    std::size_t missing = 0;
  };
  struct Exchange {
    std::vector<std::optional<std::string>> values;
    int count = 0;
    std::vector<Wait> waits;
  };

  /// A rank is late. It may only wait for another, so all are asked how far they have come: to
  /// blame is who does not answer, or else who is behind.
  struct Inquiry {
    int late;
    std::string at;  ///< since when at what, for messages
    Clock::time_point until;
  };

  void refuse(int peer, int rank, const std::string& reason, bool may_pass);
  [[nodiscard]] std::optional<std::string> mismatch(MessageReader& hello, int& rank, bool& may_pass,
                                                    Member& comer) const;
  void set(int rank, MessageReader& message);
  /// @returns whether there was room for it
  bool keep(const std::string& key, std::string value);
  void get(int rank, MessageReader& message, Clock::time_point now);
  void give_up_reads(Clock::time_point now);
  void exchange(int rank, MessageReader& message, Clock::time_point now);
  void post(int rank, MessageReader& message);
  void leave(int rank);
  void inquire(int rank, MessageReader& message, Clock::time_point now);
  void judge();
  void raise(int rank, const std::string& reason);
  void send(int rank, std::string bytes, bool close = false);
  void answer_refused(const Wait& wait, std::string_view reason);
  void answer(const Read& read, std::string_view reason);
  void begin_wait(int rank, std::size_t count);
  [[nodiscard]] Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] const Member& member(int rank) const {
    return members_[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] std::string who(int rank) const;
  [[nodiscard]] std::string missing(const std::function<bool(int)>& is_here) const;

  Party party_;
  Milliseconds silence_;
  std::vector<Member> members_;
  std::map<int, int> ranks_;  ///< by peer
  std::map<std::string, std::string> keys_;
  std::size_t key_bytes_ = 0;
  std::map<std::uint64_t, Read> reads_;                          ///< by a number of their own
  std::map<std::string, std::vector<std::uint64_t>> key_waits_;  ///< the reads that lack a key
  std::uint64_t next_read_ = 0;
  std::map<std::string, Exchange> exchanges_;
  std::vector<Output> outputs_;
  std::vector<std::string> refusals_;
  std::optional<Inquiry> inquiry_;
  std::optional<Trouble> trouble_;
  Clock::time_point next_beat_;
};

/// Beats in the time of silence that loses a rank.
constexpr int kBeatsInSilence = 5;
/// Beats in the time that all have to answer an inquiry.
constexpr int kBeatsInInquiry = 2;

}  // namespace megatrain::parallel
