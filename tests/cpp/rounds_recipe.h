// What is decided of a cluster of test_rounds.cc before it runs: its shape, its keys, and what each node's ends are
// made of. All by draws from the seed.
#pragma once
#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "core/dispatch.h"
#include "core/sim.h"
#include "rounds_toys.h"

namespace geomx::rounds {

// What a mutation switches off; each must be noticed.
struct Mutation {
  bool gives_back = true, checks_contributors = true, waits_for_ends = true, acknowledges = true;
};

struct Shape {
  uint32_t parties = 3, servers = 2, keys = 3;
  bool sparse = true, lossy = true, overlay = true, mixed = false;
  bool central = false;   // the servers' own party has workers too
  bool datagrams = true;  // else droppable parts take the stream
  std::string plugin;     // which transport of the library decides, by its name; empty: LossyHalf
  bool deltas = false;    // weights come down, as differences
  std::string relays;     // which overlay of the library decides, by its name; empty: RandomTree
  bool faults = false;    // members freeze for a while, a link between two is broken, some can't be reached
};

// One domain's end of one node.
struct End {
  End(sim::World& world, sim::SimReactor& reactor, std::string name, Tier tier, NodeId self, uint32_t num_servers,
      uint32_t num_members, KeyTable& keys, std::vector<std::string>& failures, size_t max_datagram = 1 << 16)
      : transport(world, reactor, name, max_datagram),
        link(reactor, transport, tier, counters),
        side{reactor,
             link,
             keys,
             policies,
             counters,
             tier,
             self,
             num_servers,
             num_members,
             self.role == Role::member ? self.rank : num_members,
             [&failures](const std::string& why) { failures.push_back(why); }} {
    REQUIRE(transport.bind("", 0).ok());
    link.set_self(self);
    link.on_frame([this](NodeId from, PeerId, Frame frame) { take(from, frame); });
  }
  void take(NodeId from, Frame& frame) {
    OverlayPolicy* const overlay = policies.overlay.get();
    if (frame.kind == FrameKind::overlay) return overlay->on_control(from, frame.body);
    const bool is_leave = frame.kind == FrameKind::leave;
    dispatch(from, frame, client.get(), aggregator.get());
    if (is_leave && overlay) overlay->on_left(side.contributor_of(from));
  }
  void use(std::unique_ptr<OverlayPolicy> overlay) {
    policies.overlay = std::move(overlay);
    link.on_traffic(
        [this](NodeId to, uint64_t bytes, uint64_t sent_us) {
          policies.overlay->on_delivered(to, bytes, sent_us, side.reactor.now_us());
        },
        [this](NodeId from, uint64_t bytes) { policies.overlay->on_received(from, bytes, side.reactor.now_us()); });
  }
  void connect(NodeId to, const std::string& name) {
    PeerId peer;
    REQUIRE(transport.connect(name, &peer).ok());
    link.set_peer(to, peer);
  }
  Policies policies;
  Counters counters;
  sim::SimTransport transport;
  Link link;
  Side side;
  std::unique_ptr<Client> client;
  std::unique_ptr<Aggregator> aggregator;
};

class Recipe {
 public:
  Recipe(uint64_t seed, Shape shape, Mutation mutation);

  uint64_t draw(std::initializer_list<uint64_t> values) const;
  const Shape& shape() const { return shape_; }
  const std::vector<KeySpec>& specs() const { return specs_; }
  size_t max_datagram() const { return shape_.datagrams ? 1 << 16 : 0; }

  void seal(KeyTable& keys) const;
  void set_policies(End& end) const;
  // Once its client and its aggregator are there.
  void set_mutations(End& end) const;

 private:
  KeySpec draw_spec(uint32_t index) const;
  std::unique_ptr<TransportPolicy> make_transport() const;
  std::unique_ptr<OverlayPolicy> make_overlay(End& end) const;

  uint64_t seed_;
  Shape shape_;
  Mutation mutation_;
  std::vector<KeySpec> specs_;
};

}  // namespace geomx::rounds
