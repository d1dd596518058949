// What a link sends arrives, however much is given at once.
#include <doctest/doctest.h>

#include "core/link.h"
#include "core/sim.h"

using namespace geomx;

namespace {

struct End {
  End(sim::World& world, const std::string& name, NodeId self)
      : reactor(world), transport(world, reactor, name), link(reactor, transport, Tier::wan, counters) {
    REQUIRE(transport.bind("", 0).ok());
    link.set_self(self);
    link.on_refused([this](const std::string& why) { refused.push_back(why); });
    link.on_frame([this](NodeId, PeerId, Frame frame) { taken.push_back(frame.part); });
  }
  void meet(NodeId other, const std::string& name) {
    PeerId peer = 0;
    REQUIRE(transport.connect(name, &peer).ok());
    link.set_peer(other, peer);
  }

  sim::SimReactor reactor;
  sim::SimTransport transport;
  Counters counters;
  Link link;
  std::vector<uint32_t> taken;
  std::vector<std::string> refused;
};

}  // namespace

TEST_CASE("a model of more parts than a message may have frames is asked for in one turn") {
  constexpr uint32_t parts = kMaxFrames + 7000;
  sim::World world(1);
  End worker(world, "worker", member(0)), server_(world, "server", server(0));
  worker.meet(server(0), "server");
  server_.meet(member(0), "worker");
  worker.reactor.post([&] {
    for (uint32_t part = 0; part < parts; ++part) worker.link.send(server(0), Frame(FrameKind::pull, 0, part, 0));
  });
  CHECK(world.run(10'000'000));
  CHECK(server_.refused.empty());
  REQUIRE(server_.taken.size() == parts);
  for (uint32_t part = 0; part < parts; ++part) REQUIRE(server_.taken[part] == part);  // in their order
}
