// Datagrams beside a stream, over real sockets on this host.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>

#include "core/datagram_transport.h"
#include "core/zmq_transport.h"

using namespace geomx;

namespace {

class End {
 public:
  End() {
    ZmqOptions options;
    options.is_memory_shared = false;
    transport = std::make_unique<DatagramTransport>(loop, std::make_unique<ZmqTransport>(loop, options));
    transport->receive(
        [this](PeerId from, uint8_t channel, Message message) {
          note([&] {
            last_from = from;
            got.emplace_back(channel, std::string(message.head.text()) +
                                          (message.attachments.empty() ? "" : "+" + std::to_string(message.size())));
          });
        },
        [this](const std::string& why) { note([&] { refusals.push_back(why); }); }, [](PeerId, const std::string&) {});
    transport->on_room([this](PeerId) { note([] {}); });
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
  void open() {
    loop.call([&] { REQUIRE(transport->open_channels({2}).message() == ""); });
  }
  void send(PeerId peer, uint8_t channel, const std::string& head, size_t size = 0) {
    Message message{Bytes::copy(head), {}};
    if (size != 0) message.attachments.push_back(Bytes::copy(std::string(size, 'x')));
    loop.call([&] { transport->send(peer, channel, std::move(message)); });
  }
  size_t max_datagram(PeerId peer) {
    size_t size = 0;
    loop.call([&] { size = transport->max_datagram(peer); });
    return size;
  }
  double figure(const std::string& name) {
    double value = 0;
    loop.call([&] {
      const auto all = transport->figures();
      const auto found = all.find(name);
      if (found != all.end()) value = found->second;
    });
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
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, std::string>> got;
  std::vector<std::string> refusals;
  PeerId last_from = 0;

 private:
  template <typename Change>
  void note(Change change) {
    const std::lock_guard lock(mutex);
    change();
    changed.notify_all();
  }
};

bool come_up(End& end, PeerId peer) {
  for (int i = 0; i < 500 && end.max_datagram(peer) == 0; ++i) usleep(10'000);
  return end.max_datagram(peer) != 0;
}

void send_stray(uint16_t port, const std::vector<uint8_t>& datagram) {
  const int fd = socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(sendto(fd, datagram.data(), datagram.size(), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)) > 0);
  ::close(fd);
}

}  // namespace

TEST_CASE("until both have opened channels everything takes the stream, then parts take datagrams, both ways") {
  End server, client;
  const PeerId peer = client.connect(server.listen());
  client.open();
  client.send(peer, 0, "control");
  client.send(peer, kBulk, "early", 5000);
  REQUIRE(server.wait([&] { return server.got.size() == 2; }));
  CHECK(client.max_datagram(peer) == 0);
  server.open();
  REQUIRE(come_up(client, peer));
  REQUIRE(come_up(server, server.last_from));
  CHECK(client.max_datagram(peer) > 1300);
  const double before = client.figure("datagrams.sent");
  client.send(peer, kBulk, "part", 100'000);
  client.send(peer, 1, "lossy", 500);
  client.send(peer, 2, "lossier", 500);
  client.send(peer, 0, "control again");
  REQUIRE(server.wait([&] { return server.got.size() == 6; }));
  std::sort(server.got.begin(), server.got.end());
  CHECK(server.got == std::vector<std::pair<int, std::string>>{{0, "control"},
                                                               {0, "control again"},
                                                               {0, "early+5005"},
                                                               {1, "lossy+505"},
                                                               {2, "lossier+507"},
                                                               {kBulk, "part+100004"}});
  CHECK(client.figure("datagrams.sent") >= before + 70);
  server.send(server.last_from, kBulk, "value", 50'000);
  REQUIRE(client.wait([&] { return client.got.size() == 1; }));
  CHECK(client.got[0] == std::make_pair(int(kBulk), std::string("value+50005")));
}

TEST_CASE("what is lost of reliable messages is sent again; each arrives once") {
  End server, client;
  const PeerId peer = client.connect(server.listen());
  client.open();
  server.open();
  client.send(peer, 0, "hello");
  REQUIRE(come_up(client, peer));
  server.loop.call([&] { server.transport->set_loss(0.2); });
  for (int i = 0; i < 50; ++i) client.send(peer, kBulk, "part " + std::to_string(i), size_t(i) * 1000);
  REQUIRE(server.wait([&] { return server.got.size() == 51; }));
  std::sort(server.got.begin(), server.got.end());
  CHECK(std::unique(server.got.begin(), server.got.end()) == server.got.end());
  CHECK(client.figure("datagrams.lost") > 0);
}

TEST_CASE("strangers' datagrams are counted and go nowhere") {
  End server, client;
  const PeerId peer = client.connect(server.listen());
  client.open();
  server.open();
  client.send(peer, 0, "hello");
  REQUIRE(come_up(client, peer));
  Packet stray;
  stray.kind = PacketKind::data;
  stray.key = 12345;
  stray.number = 1;
  const uint8_t byte = 1;
  stray.chunks = {{1, 0, 1, &byte, 1}};
  send_stray(server.transport->port(), write_packet(stray));
  send_stray(server.transport->port(), {1, 2, 3});
  REQUIRE(server.wait([&] { return server.refusals.size() == 2; }));
  CHECK(server.refusals == std::vector<std::string>{"a datagram that shows no key of ours", "a malformed datagram"});
  CHECK(server.figure("datagrams.strangers") == 2);
  CHECK(server.got.size() == 1);
}

TEST_CASE("where datagrams stop to get through, the stream takes over what they carried") {
  End server, client;
  const PeerId peer = client.connect(server.listen());
  client.open();
  server.open();
  client.send(peer, 0, "hello");
  REQUIRE(come_up(client, peer));
  server.loop.call([&] { server.transport->set_loss(1); });
  client.send(peer, kBulk, "part", 3000);
  REQUIRE(server.wait([&] { return server.got.size() == 2; }));
  CHECK(server.got[1] == std::make_pair(0, std::string("part+3004")));
  CHECK(client.refusals ==
        std::vector<std::string>{"datagrams don't get through any more, so everything takes the stream"});
}
