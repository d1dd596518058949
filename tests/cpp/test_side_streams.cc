// Lossy channels as streams of their own, over real sockets on this host.
#include <algorithm>

#include "site.h"

using namespace geomx;

namespace {

// Connects to the port and stays; sends what it is told.
int stray(uint16_t port, const std::string& words) {
  const int fd = connect_stranger(SOCK_STREAM, port);
  say(fd, words);
  return fd;
}

}  // namespace

TEST_CASE("until both have opened channels everything takes the one stream, then each channel its own, both ways") {
  WanSite server, client;
  const PeerId peer = client.connect(server.listen());
  client.open({2, true});
  client.send(peer, 0, "control");
  client.send(peer, 1, "early", 50);
  REQUIRE(server.wait_arrivals(2));
  CHECK(server.got()[1].first != 1);
  server.open({2, true});
  REQUIRE(client.is_up(peer));
  REQUIRE(server.is_up(server.last_from()));
  client.send(peer, 1, "lossy", 100'000);
  client.send(peer, 2, "lossier");
  client.send(peer, 0, "control");
  client.send(peer, kBulk, "part", 50);
  REQUIRE(server.wait_arrivals(6));
  std::vector<std::pair<int, std::string>> got = server.got();
  std::sort(got.begin() + 2, got.end());
  CHECK(got[2] == std::make_pair(0, std::string("control")));
  CHECK(got[4] == std::make_pair(1, std::string("lossy+100005")));
  CHECK(got[5] == std::make_pair(2, std::string("lossier")));
  CHECK(client.figure("streams.messages") == 2);
  server.send(server.last_from(), 2, "answer");
  REQUIRE(client.wait_arrivals(1));
  CHECK(client.got()[0] == std::make_pair(2, std::string("answer")));
  CHECK(client.refusals().empty());
}

TEST_CASE("a channel takes no more than leaves, while others go on, and tells when it takes more") {
  WanSite server, client;
  const PeerId peer = client.connect(server.listen());
  client.open({2, true});
  server.open({2, true});
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  REQUIRE(server.wait_arrivals(1));
  REQUIRE(server.is_up(server.last_from()));
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
  const int before = client.rooms();
  stalled.unlock();
  REQUIRE(client.wait_rooms(before + 1));
  CHECK(client.room(peer, 1) != 0);
  REQUIRE(server.wait_arrivals(size_t(given) + 1));
}

TEST_CASE("the smaller number of channels counts") {
  WanSite server, client;
  const PeerId peer = client.connect(server.listen());
  client.open({5, true});
  server.open({1, true});
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  client.send(peer, 4, "part");
  REQUIRE(server.wait_arrivals(2));
  CHECK(server.got()[1].first == 1);
}

TEST_CASE("strangers' connections are counted and closed") {
  WanSite server, client;
  const PeerId peer = client.connect(server.listen());
  client.open({2, true});
  server.open({2, true});
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  const int with_words = stray(server.streams->port(), "GET / HTTP/1.0\r\n");
  const int without = stray(server.streams->port(), "GET");
  ::close(without);
  REQUIRE(server.wait_refusals(2));
  CHECK(server.refusals() == std::vector<std::string>(2, "a connection that shows no key of ours"));
  char byte = 0;
  CHECK(recv(with_words, &byte, 1, 0) <= 0);
  ::close(with_words);
  CHECK(server.figure("streams.strangers") == 2);
  client.send(peer, 1, "part");
  REQUIRE(server.wait_arrivals(2));
}

TEST_CASE("where a channel breaks, the reliable way takes over") {
  WanSite server, client;
  const PeerId peer = client.connect(server.listen());
  client.open({2, true});
  server.open({2, true});
  client.send(peer, 0, "hello");
  REQUIRE(client.is_up(peer));
  REQUIRE(server.wait_arrivals(1));
  REQUIRE(server.is_up(server.last_from()));
  // Garbage on one of them: the server closes all.
  client.loop.call([&] { client.streams->garble_for_tests(peer); });
  REQUIRE(client.wait_refusals(1));
  CHECK(client.refusals()[0].find("so everything takes the reliable way") != std::string::npos);
  client.send(peer, 2, "part");
  REQUIRE(server.wait_arrivals(2));
  CHECK(server.got()[1].first != 2);
}
