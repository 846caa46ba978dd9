// Peers that send what they should not, or nothing: they harm themselves alone.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <random>

#include "parallel/rendezvous/wire.h"
#include "tests/parallel/meeting.h"

namespace megatrain::parallel {
namespace {

std::string hello(int rank, int world, std::uint32_t version = kProtocolVersion) {
  return MessageWriter(Kind::hello)
      .u32(version)
      .text("test")
      .u32(static_cast<std::uint32_t>(world))
      .u64(7)
      .u32(0)
      .u32(static_cast<std::uint32_t>(rank))
      .text("host")
      .u64(1)
      .finish();
}

/// Waits for more keys at a time than any rank has a use for.
std::string many_reads() {
  constexpr std::uint32_t kCount = 100'000;
  MessageWriter writer(Kind::get);
  writer.u32(0).u64(3'600'000).u32(kCount);
  for (std::uint32_t i = 0; i < kCount; ++i) writer.text(std::to_string(i));
  return writer.finish();
}

FileDescriptor connect(std::uint16_t port) {
  std::string reason;
  FileDescriptor socket = connect_to({"127.0.0.1", port}, Clock::now() + kPatience, reason);
  EXPECT_TRUE(bool(socket)) << reason;
  return socket;
}

/// Sends bytes, as far as the other side takes them.
void write(const FileDescriptor& socket, std::string_view bytes) {
  const auto deadline = Clock::now() + kPatience;
  while (!bytes.empty() && Clock::now() < deadline) {
    const Transfer sent = send(socket, bytes);
    bytes.remove_prefix(sent.bytes);
    if (sent.closed) return;
    pollfd wait{socket.get(), POLLOUT, 0};
    if (sent.bytes == 0) ::poll(&wait, 1, 1000);
  }
}

/// Reads until the other side closes. @returns what came
std::string read_to_end(const FileDescriptor& socket) {
  std::string all;
  std::array<char, 4096> bytes{};
  const auto deadline = Clock::now() + kPatience;
  while (Clock::now() < deadline) {
    pollfd wait{socket.get(), POLLIN, 0};
    ::poll(&wait, 1, poll_timeout(deadline));
    const Transfer got = receive(socket, bytes);
    all.append(bytes.data(), got.bytes);
    if (got.closed) return all;
  }
  ADD_FAILURE() << "it was not closed";
  return all;
}

class HostileTest : public testing::Test {
 protected:
  ServerOptions options(Milliseconds silence = 10s) {
    ServerOptions result = server_options(2, words_);
    result.party.configuration = 7;
    result.silence = silence;
    result.on_trouble = [this](const Trouble& trouble) { troubles_.add(trouble.reason); };
    return result;
  }
  /// That the server still serves.
  static void expect_alive(const RendezvousServer& server) {
    as_ranks(2, [&](int rank) {
      RendezvousOptions given;
      given.configuration = 7;
      given.join_limit = kPatience;
      Rendezvous(place_of(rank, 2, server.port()), given).barrier("alive", kPatience);
    });
  }

  Words words_, troubles_;
};

TEST_F(HostileTest, Garbage) {
  const RendezvousServer server(options());
  const std::string good = hello(0, 2);
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(100'000, '\0'),
        std::string(100'000, '\xff'), std::string("\1\0\0\0\x63", 5),
        std::string("\4\0\0\0\1abc", 8), good.substr(0, 4) + std::string(good.size() - 4, 'x')}) {
    const FileDescriptor socket = connect(server.port());
    write(socket, bytes);
    EXPECT_EQ(read_to_end(socket), "");
  }
  expect_alive(server);
  EXPECT_EQ(troubles_.text(), "");
}

TEST_F(HostileTest, AnotherVersionIsToldSo) {
  const RendezvousServer server(options());
  const FileDescriptor socket = connect(server.port());
  write(socket, hello(0, 2, 99));
  EXPECT_TRUE(says(read_to_end(socket), "version 99"));
  EXPECT_TRUE(says(words_.text(), "version 99"));
}

TEST_F(HostileTest, HalvesAndSilence) {
  const RendezvousServer server(options());
  std::vector<FileDescriptor> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(connect(server.port()));
  for (std::size_t i = 0; i < idle.size(); ++i) write(idle[i], hello(0, 2).substr(0, i % 40));
  expect_alive(server);
  // Those that were too many are closed at once, the others after their time.
  EXPECT_EQ(read_to_end(idle.front()), "");
}

TEST_F(HostileTest, BytesOneByOne) {
  const RendezvousServer server(options());
  const FileDescriptor slow = connect(server.port());
  const std::string bytes = hello(1, 2);
  for (const char byte : bytes) write(slow, std::string(1, byte));
  std::array<char, 64> answer{};
  pollfd wait{slow.get(), POLLIN, 0};
  ::poll(&wait, 1, 60'000);
  EXPECT_GT(receive(slow, answer).bytes, 0U);
  EXPECT_EQ(static_cast<Kind>(answer[4]), Kind::welcome);
}

TEST_F(HostileTest, ARankThatSendsNonsenseIsNamed) {
  for (const std::string& nonsense :
       {std::string("\xff\xff\xff\x7f", 4), std::string("\1\0\0\0\x77", 5),
        std::string("\3\0\0\0\2ab", 7), hello(0, 2),
        MessageWriter(Kind::set)
            .u32(0)
            .u32(1)
            .text(std::string(kMaxName + 1, 'k'))
            .text("v")
            .finish(),
        MessageWriter(Kind::set).u32(0).u32(0xffffffff).text("k").text("v").finish(),
        MessageWriter(Kind::get).u32(0).u64(1).u32(0xffffffff).text("k").finish(), many_reads(),
        MessageWriter(Kind::beat).text("a").u32(1).finish()}) {
    const RendezvousServer server(options());
    const FileDescriptor socket = connect(server.port());
    write(socket, hello(1, 2));
    write(socket, nonsense);
    read_to_end(socket);
    EXPECT_TRUE(server.wait_until_empty(kPatience));
  }
  EXPECT_TRUE(says(troubles_.text(), "rank 1"));
}

TEST_F(HostileTest, AStoreHasAnEnd) {
  const RendezvousServer server(options());
  std::string refusal;
  as_ranks(2, [&](int rank) {
    RendezvousOptions given;
    given.configuration = 7;
    Rendezvous mine(place_of(rank, 2, server.port()), given);
    if (rank == 0)
      refusal = error_of([&] {
        for (int i = 0; i < 80; ++i) mine.set(std::to_string(i), std::string(kMaxValue, 'x'));
      });
    mine.barrier("end", kPatience);
  });
  EXPECT_TRUE(says(refusal, "full"));
}

TEST_F(HostileTest, ARankThatSaysNothingIsLost) {
  const RendezvousServer server(options(400ms));
  const FileDescriptor silent = connect(server.port());
  write(silent, hello(1, 2));
  RendezvousOptions given;
  given.configuration = 7;
  const std::string error =
      error_of<RankLost>([&] { const Rendezvous mine(place_of(0, 2, server.port()), given); });
  EXPECT_TRUE(says(error, "rank 1 (process 1 on host) was lost: nothing was heard"));
}

TEST_F(HostileTest, AServerThatIsNone) {
  const FileDescriptor listener = listen_at("127.0.0.1", 0);
  std::thread server([&] {
    pollfd wait{listener.get(), POLLIN, 0};
    ::poll(&wait, 1, 60'000);
    bool exhausted = false;
    const FileDescriptor socket = accept_from(listener, exhausted);
    write(socket, "HTTP/1.1 400 Bad Request\r\n\r\n");
  });
  RendezvousOptions given;
  given.join_limit = 10ms;
  EXPECT_TRUE(says(
      error_of<UserError>([&] { const Rendezvous mine(place_of(0, 2, port_of(listener)), given); }),
      "no rendezvous of MegaTrain"));
  server.join();
}

TEST(WireTest, RandomBytesAreRefusedOrRead) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    MessageBuffer buffer(256);
    std::string bytes(random() % 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random() % 4 == 0 ? random() : 0);
    buffer.append(bytes);
    try {
      while (const auto message = buffer.next()) {
        MessageReader reader(*message);
        reader.u32();
        reader.text(16);
        reader.end();
      }
      EXPECT_GE(buffer.lacks(), 1U);
    } catch (const WireError&) {
    }
  }
}

}  // namespace
}  // namespace megatrain::parallel
