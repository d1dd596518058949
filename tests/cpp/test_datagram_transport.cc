// Datagrams beside a stream, over real sockets on this host.
#include <algorithm>

#include "site.h"

using namespace geomx;

namespace {

void send_stray(uint16_t port, const std::vector<uint8_t>& datagram) {
  const int fd = connect_stranger(SOCK_DGRAM, port);
  say(fd, std::string(datagram.begin(), datagram.end()));
  ::close(fd);
}

}  // namespace

TEST_CASE("until both have opened channels everything takes the stream, then parts take datagrams, both ways") {
  WanSite server, client;
  const PeerId peer = client.connect(server.listen());
  client.open({2});
  client.send(peer, 0, "control");
  client.send(peer, kBulk, "early", 5000);
  REQUIRE(server.wait_arrivals(2));
  CHECK(client.max_datagram(peer) == 0);
  server.open({2});
  REQUIRE(client.is_up(peer));
  REQUIRE(server.is_up(server.last_from()));
  CHECK(client.max_datagram(peer) > 1300);
  const double before = client.figure("datagrams.sent");
  client.send(peer, kBulk, "part", 100'000);
  client.send(peer, 1, "lossy", 500);
  client.send(peer, 2, "lossier", 500);
  client.send(peer, 0, "control again");
  REQUIRE(server.wait_arrivals(6));
  std::vector<std::pair<int, std::string>> got = server.got();
  std::sort(got.begin(), got.end());
  CHECK(got == std::vector<std::pair<int, std::string>>{{0, "control"},
                                                        {0, "control again"},
                                                        {0, "early+5005"},
                                                        {1, "lossy+505"},
                                                        {2, "lossier+507"},
                                                        {kBulk, "part+100004"}});
  CHECK(client.figure("datagrams.sent") >= before + 70);
  server.send(server.last_from(), kBulk, "value", 50'000);
  REQUIRE(client.wait_arrivals(1));
  CHECK(client.got()[0] == std::make_pair(int(kBulk), std::string("value+50005")));
}

TEST_CASE("what is lost of reliable messages is sent again; each arrives once") {
  WanSite server, client;
  const PeerId peer = client.connect(server.listen());
  client.open({2});
  server.open({2});
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  server.loop.call([&] { server.transport->set_loss(0.2); });
  for (int i = 0; i < 50; ++i) client.send(peer, kBulk, "part " + std::to_string(i), size_t(i) * 1000);
  REQUIRE(server.wait_arrivals(51));
  std::vector<std::pair<int, std::string>> got = server.got();
  std::sort(got.begin(), got.end());
  CHECK(std::unique(got.begin(), got.end()) == got.end());
  CHECK(client.figure("datagrams.lost") > 0);
}

TEST_CASE("strangers' datagrams are counted and go nowhere") {
  WanSite server, client;
  const PeerId peer = client.connect(server.listen());
  client.open({2});
  server.open({2});
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  Packet stray;
  stray.kind = PacketKind::data;
  stray.key = 12345;
  stray.number = 1;
  const uint8_t byte = 1;
  stray.chunks = {{1, 0, 1, &byte, 1}};
  send_stray(server.transport->port(), write_packet(stray));
  send_stray(server.transport->port(), {1, 2, 3});
  REQUIRE(server.wait_refusals(2));
  CHECK(server.refusals() == std::vector<std::string>{"a datagram that shows no key of ours", "a malformed datagram"});
  CHECK(server.figure("datagrams.strangers") == 2);
  CHECK(server.got().size() == 1);
}

TEST_CASE("where datagrams stop to get through, the stream takes over what they carried") {
  WanSite server, client;
  const PeerId peer = client.connect(server.listen());
  client.open({2});
  server.open({2});
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  server.loop.call([&] { server.transport->set_loss(1); });
  client.send(peer, kBulk, "part", 3000);
  REQUIRE(server.wait_arrivals(2));
  CHECK(server.got()[1] == std::make_pair(0, std::string("part+3004")));
  CHECK(client.refusals() ==
        std::vector<std::string>{"datagrams don't get through any more, so everything takes the stream"});
}
