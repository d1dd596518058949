// Lossy channels as streams of their own, over real sockets on this host.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "core/datagram_transport.h"
#include "core/side_streams.h"
#include "core/zmq_transport.h"

using namespace geomx;

namespace {

class End {
 public:
  End() {
    ZmqOptions options;
    options.is_memory_shared = false;
    auto made = std::make_unique<SideStreams>(loop, std::make_unique<ZmqTransport>(loop, options));
    streams = made.get();
    transport = std::make_unique<DatagramTransport>(loop, std::move(made));  // as nodes put them together
    transport->receive(
        [this](PeerId from, uint8_t channel, Message message) {
          note([&] {
            last_from = from;
            got.emplace_back(channel, std::string(message.head.text()) + "+" + std::to_string(message.size()));
          });
        },
        [this](const std::string& why) { note([&] { refusals.push_back(why); }); }, [](PeerId, const std::string&) {});
    transport->on_room([this](PeerId) { note([&] { ++rooms; }); });
    loop.start();
  }
  ~End() {
    loop.call([this] {
      transport->set_linger_ms(0);
      transport->close();
    });
    loop.stop();
    transport.reset();
  }
  uint16_t listen() {
    uint16_t port = 0;
    loop.call([&] {
      REQUIRE(transport->bind("127.0.0.1", 0).ok());
      const std::string address = transport->address();
      port = uint16_t(std::stoi(address.substr(address.rfind(':') + 1)));
    });
    return port;
  }
  PeerId connect(uint16_t port) {
    PeerId peer = 0;
    loop.call([&] { REQUIRE(transport->connect("127.0.0.1:" + std::to_string(port), &peer).ok()); });
    return peer;
  }
  void open(uint8_t count = 2) {
    loop.call([&] { REQUIRE(transport->open_channels({count, true}).message() == ""); });
  }
  void send(PeerId peer, uint8_t channel, const std::string& head, size_t size = 0) {
    Message message{Bytes::copy(head), {}};
    if (size != 0) message.attachments.push_back(Bytes::copy(std::string(size, 'x')));
    loop.call([&] { transport->send(peer, channel, std::move(message)); });
  }
  size_t room(PeerId peer, uint8_t channel) {
    size_t size = 0;
    loop.call([&] { size = transport->room(peer, channel); });
    return size;
  }
  bool is_up(PeerId peer) {
    size_t size = 0;
    for (int i = 0; i < 500 && size == 0; ++i) {
      loop.call([&] { size = transport->max_datagram(peer); });
      if (size == 0) usleep(10'000);
    }
    return size != 0;
  }
  double figure(const std::string& name) {
    double value = 0;
    loop.call([&] { value = transport->figures()[name]; });
    return value;
  }
  template <typename Condition>
  bool wait(Condition is_true) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    std::unique_lock lock(mutex);
    while (!is_true()) {
      changed.wait_for(lock, std::chrono::milliseconds(20));
      if (std::chrono::steady_clock::now() > end) return false;
    }
    return true;
  }

  Loop loop;
  std::unique_ptr<DatagramTransport> transport;
  SideStreams* streams = nullptr;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, std::string>> got;
  std::vector<std::string> refusals;
  PeerId last_from = 0;
  int rooms = 0;

 private:
  template <typename Change>
  void note(Change change) {
    const std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
};

// Connects to the port and stays; sends what it is told.
int stray(uint16_t port, const std::string& words) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0);
  CHECK(send(fd, words.data(), words.size(), MSG_NOSIGNAL) == ssize_t(words.size()));
  return fd;
}

}  // namespace

TEST_CASE("until both have opened channels everything takes the one stream, then each channel its own, both ways") {
  End server, client;
  const PeerId peer = client.connect(server.listen());
  client.open();
  client.send(peer, 0, "control");
  client.send(peer, 1, "early", 50);
  REQUIRE(server.wait([&] { return server.got.size() == 2; }));
  CHECK(server.got[1].first != 1);
  server.open();
  REQUIRE(client.is_up(peer));
  REQUIRE(server.is_up(server.last_from));
  client.send(peer, 1, "lossy", 100'000);
  client.send(peer, 2, "lossier");
  client.send(peer, 0, "control");
  client.send(peer, kBulk, "part", 50);
  REQUIRE(server.wait([&] { return server.got.size() == 6; }));
  std::sort(server.got.begin() + 2, server.got.end());
  CHECK(server.got[2] == std::make_pair(0, std::string("control+7")));
  CHECK(server.got[4] == std::make_pair(1, std::string("lossy+100005")));
  CHECK(server.got[5] == std::make_pair(2, std::string("lossier+7")));
  CHECK(client.figure("streams.messages") == 2);
  server.send(server.last_from, 2, "answer");
  REQUIRE(client.wait([&] { return client.got.size() == 1; }));
  CHECK(client.got[0] == std::make_pair(2, std::string("answer+6")));
  CHECK(client.refusals.empty());
}

TEST_CASE("a channel takes no more than leaves, while others go on, and tells when it takes more") {
  End server, client;
  const PeerId peer = client.connect(server.listen());
  client.open();
  server.open();
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  REQUIRE(server.wait([&] { return server.got.size() == 1; }));
  REQUIRE(server.is_up(server.last_from));
  std::mutex stalled;
  stalled.lock();
  server.loop.post([&] { const std::lock_guard waits(stalled); });  // it reads nothing
  int given = 0;
  while (given < 10'000 && client.room(peer, 1) != 0) {
    client.send(peer, 1, "part", 16'000);
    ++given;
  }
  CHECK(given < 10'000);
  CHECK(client.room(peer, 2) != 0);
  CHECK(client.room(peer, kBulk) == SIZE_MAX);
  const int before = client.rooms;
  stalled.unlock();
  REQUIRE(client.wait([&] { return client.rooms > before; }));
  CHECK(client.room(peer, 1) != 0);
  REQUIRE(server.wait([&] { return server.got.size() == size_t(given) + 1; }));
}

TEST_CASE("the smaller number of channels counts") {
  End server, client;
  const PeerId peer = client.connect(server.listen());
  client.open(5);
  server.open(1);
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  client.send(peer, 4, "part");
  REQUIRE(server.wait([&] { return server.got.size() == 2; }));
  CHECK(server.got[1].first == 1);
}

TEST_CASE("strangers' connections are counted and closed") {
  End server, client;
  const PeerId peer = client.connect(server.listen());
  client.open();
  server.open();
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  const int with_words = stray(server.streams->port(), "GET / HTTP/1.0\r\n");
  const int without = stray(server.streams->port(), "GET");
  ::close(without);
  REQUIRE(server.wait([&] { return server.refusals.size() == 2; }));
  CHECK(server.refusals == std::vector<std::string>(2, "a connection that shows no key of ours"));
  char byte = 0;
  CHECK(recv(with_words, &byte, 1, 0) <= 0);
  ::close(with_words);
  CHECK(server.figure("streams.strangers") == 2);
  client.send(peer, 1, "part");
  REQUIRE(server.wait([&] { return server.got.size() == 2; }));
}

TEST_CASE("where a channel breaks, the reliable way takes over") {
  End server, client;
  const PeerId peer = client.connect(server.listen());
  client.open();
  server.open();
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  REQUIRE(server.wait([&] { return server.got.size() == 1; }));
  REQUIRE(server.is_up(server.last_from));
  // Garbage on one of them: the server closes all.
  client.loop.call([&] { client.streams->garble_for_tests(peer); });
  REQUIRE(client.wait([&] { return client.refusals.size() == 1; }));
  CHECK(client.refusals[0].find("so everything takes the reliable way") != std::string::npos);
  client.send(peer, 2, "part");
  REQUIRE(server.wait([&] { return server.got.size() == 2; }));
  CHECK(server.got[1].first != 2);
}
