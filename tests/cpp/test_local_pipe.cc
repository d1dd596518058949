// Pipes between nodes of one host: all arrives once and in order whatever its size, and strangers get nowhere.
#include <doctest/doctest.h>
#include <sys/socket.h>

#include <thread>

#include "core/local_pipe.h"
#include "site.h"

namespace {

using namespace geomx;
using Found = LocalPipe::Found;

struct Ends {
  Ends() {
    int fds[2];
    REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    left = std::make_unique<LocalPipe>(fds[0]);
    right = std::make_unique<LocalPipe>(fds[1]);
  }
  Found receive() {
    return right->receive(1 << 20, [this](LocalPipe::Frames frames) { arrived.push_back(std::move(frames)); });
  }
  std::unique_ptr<LocalPipe> left, right;
  std::vector<LocalPipe::Frames> arrived;
};

TEST_CASE("messages of every size arrive in order, frames and all, also where the kernel takes them bit by bit") {
  Ends ends;
  const std::vector<size_t> sizes = {0, 1, 4095, 70'000, 3'000'000, 5};
  for (size_t size : sizes) REQUIRE(ends.left->send({Bytes::copy(pattern(size)), Bytes(), Bytes::copy("end")}));
  CHECK(ends.left->has_unsent());
  for (int turn = 0; turn < 1000 && ends.arrived.size() < sizes.size(); ++turn) {
    CHECK(ends.receive() != Found::end);
    REQUIRE(ends.left->flush());
  }
  REQUIRE(ends.arrived.size() == sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    REQUIRE(ends.arrived[i].size() == 3);
    CHECK(ends.arrived[i][0].text() == pattern(sizes[i]));
    CHECK(ends.arrived[i][1].empty());
    CHECK(ends.arrived[i][2].text() == "end");
  }
  CHECK(ends.receive() == Found::nothing);
}

TEST_CASE("what was sent before the end is read before the end is told; sending to nobody is told") {
  Ends ends;
  REQUIRE(ends.left->send({Bytes::copy("last words")}));
  ends.left.reset();
  CHECK(ends.receive() == Found::nothing);
  REQUIRE(ends.arrived.size() == 1);
  CHECK(ends.receive() == Found::end);
  CHECK_FALSE(ends.right->send({Bytes::copy("too late")}));
}

TEST_CASE("garbage is told as such: no frames, too many, sizes that nothing has") {
  const std::vector<std::vector<uint32_t>> heads = {{0}, {70'000}, {1, 0, 0xffffffff}};
  for (const auto& head : heads) {
    Ends ends;
    REQUIRE(::send(ends.left->fd(), head.data(), head.size() * 4, 0) == static_cast<ssize_t>(head.size() * 4));
    CHECK(ends.receive() == Found::garbage);
    CHECK(ends.arrived.empty());
  }
}

TEST_CASE("only who shows the secret is taken, whoever else connects") {
  const auto listener = PipeListener::create();
  REQUIRE(listener != nullptr);
  const PipeOffer offer = listener->offer(), other = listener->offer();
  CHECK(offer.name == other.name);
  CHECK(offer.secret != other.secret);
  PipeOffer guess = offer;
  guess.secret[3] ^= 1;
  const auto stranger = LocalPipe::connect(guess);
  REQUIRE(stranger != nullptr);
  CHECK(listener->accept(offer) == nullptr);
  const auto near = LocalPipe::connect(offer);
  REQUIRE(near != nullptr);
  CHECK(listener->accept(other) == nullptr);
  const auto far = listener->accept(offer);
  REQUIRE(far != nullptr);
  REQUIRE(near->send({Bytes::copy("hello")}));
  std::string heard;
  far->receive(100, [&](LocalPipe::Frames frames) { heard = frames[0].text(); });
  CHECK(heard == "hello");
  for (int i = 0; i < 100; ++i) LocalPipe::connect(guess);  // what strangers leave behind is bounded
  CHECK(listener->accept(offer) == nullptr);
  PipeOffer nobody = offer;
  nobody.name += "x";
  CHECK(LocalPipe::connect(nobody) == nullptr);
}

TEST_CASE("two transports of one host change over to a pipe and lose nothing on the way") {
  Site server, client;
  const PeerId peer = client.connect(server.listen());
  constexpr size_t count = 3000;
  for (size_t i = 0; i < count; ++i) client.send(peer, std::to_string(i));
  REQUIRE(server.wait_arrivals(count));
  for (size_t i = 0; i < count; ++i) CHECK(server.text(i) == std::to_string(i));
  CHECK(client.has_pipe_to(peer));
  CHECK(server.has_pipe_to(server.arrivals()[0].from));
  server.send(server.arrivals()[0].from, "answer");
  CHECK(client.wait_arrivals(1));
  client.close();
  CHECK(server.wait_losses(1));
  CHECK(server.refusals().empty());
}

}  // namespace
