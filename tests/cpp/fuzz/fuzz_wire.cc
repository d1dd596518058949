// Any bytes as a message that reaches a node: the parser, and then each room that takes frames from others, with the
// state that earlier frames of the same message have made. Nothing but counters and sentences may come of it.
//
// The first byte picks the room; the rest is the message's head, or, cut at 0xfffe, its head and attachments.
#include "core/aggregator.h"
#include "core/client.h"
#include "core/directory.h"
#include "core/dispatch.h"
#include "core/identity_codec.h"
#include "core/registry.h"
#include "core/root.h"
#include "core/sim.h"

using namespace geomx;

namespace {

constexpr uint64_t kLimitUs = 100'000;

// What all rooms stand on. What they send goes to nobody.
struct Ground {
  explicit Ground(NodeId self)
      : transport(world, reactor, "self"),
        link(reactor, transport, Tier::wan, counters),
        side{reactor,
             link,
             keys,
             policies,
             counters,
             Tier::wan,
             self,
             2,
             3,
             self.role == Role::member ? self.rank : 3,
             [](const std::string&) {}} {
    GX_CHECK(transport.bind("", 0).ok(), "the simulated network is fresh");
    link.set_self(self);
    link.on_frame([](NodeId, PeerId, Frame) {});
    for (NodeId node : {scheduler(), server(0), server(1), member(0), member(1), member(2)}) {
      PeerId peer;
      GX_CHECK(transport.connect("peer" + std::to_string(node.packed()), &peer).ok(), "connecting always succeeds");
      if (node != self) link.set_peer(node, peer);
    }
    for (uint32_t index = 0; index < 2; ++index) {
      KeySpec spec;
      spec.index = index;
      spec.name = "k" + std::to_string(index);
      spec.id = key_id(spec.name);
      spec.shape = {4};
      spec.shards = {{0, 0, 2}, {1, 2, 2}};
      Key& key = keys.add(spec);
      for (auto& tier : key.codec)
        for (auto& codec : tier) codec = std::shared_ptr<Codec>(&identity_codec(), [](Codec*) {});
    }
  }

  sim::World world{1};
  sim::SimReactor reactor{world};
  Counters counters;
  Policies policies;
  KeyTable keys;
  sim::SimTransport transport;
  Link link;
  Side side;
};

// Whose frame the i-th is: everybody's turn comes.
NodeId sender(size_t i) {
  const NodeId nodes[] = {member(0), member(1), server(1), member(2), scheduler(), NodeId{Role(3), kNobody >> 2}};
  return nodes[i % 6];
}

void feed_rounds(std::vector<Frame>& frames, bool is_mixed) {
  Ground ground(server(0));
  Root root(ground.side, [] {});
  SyncPolicy sync;
  sync.is_mixed = is_mixed;
  sync.staleness = 1;
  Aggregator aggregator(ground.side, 3, MemberSet(), 0, sync, root);
  root.serve(&aggregator);
  for (size_t i = 0; i < frames.size(); ++i) dispatch(sender(i), frames[i], nullptr, &aggregator);
  (void)aggregator.oldest_stall();
  ground.world.run(kLimitUs);
}

void feed_client(std::vector<Frame>& frames) {
  Ground ground(member(0));
  Client client(ground.side);
  client.on_value([&](const Frame& frame, bool) {
    Bytes values;
    (void)client.decode(frame, &values);
  });
  for (uint32_t part = 0; part < 2; ++part) client.push(0, part, Bytes::copy("12345678"), 0);
  for (size_t i = 0; i < frames.size(); ++i) dispatch(server(uint32_t(i % 2)), frames[i], &client, nullptr);
  ground.world.run(kLimitUs);
}

void feed_directory(std::vector<Frame>& frames, bool is_root) {
  Ground ground(is_root ? server(0) : server(1));
  Directory::Place place;
  place.wan = &ground.link;
  if (!is_root) place.above = &ground.link;
  place.num_servers = 2;
  place.num_members = 3;
  place.is_root = is_root;
  Directory::Events events;
  events.on_spec = [&](KeySpec spec) { (void)spec.parts().size(); };
  events.on_configured = [](const std::string&, const std::string&) {};
  events.on_sealed = [] {};
  events.on_refused = [](const std::string&, const std::string&, const std::string&) {};
  events.on_barrier_done = [](bool, uint32_t) {};
  events.fail = [](const std::string&) {};
  events.name_of = [](Tier, NodeId) { return std::string("somebody"); };
  Directory directory(std::move(place), {}, std::move(events));
  for (size_t i = 0; i < frames.size(); ++i) directory.take(Tier::wan, sender(i), frames[i]);
  directory.tell_who_is_missing();
  ground.world.run(kLimitUs);
}

void feed_registry(std::vector<Frame>& frames) {
  Ground ground(scheduler());
  RegistryOptions options;
  options.tier = Tier::wan;
  options.domain = "the WAN";
  options.join_us = options.death_us = 1'000'000;
  Registry registry(ground.reactor, ground.link, std::move(options), [](int, const std::string&) {});
  registry.on_done([](const Status&) {});
  registry.start();
  for (size_t i = 0; i < frames.size(); ++i) registry.take(sender(i), PeerId(i % 6), frames[i]);
  ground.world.run(kLimitUs);
}

void feed_bodies(const std::vector<Frame>& frames) {
  for (const Frame& frame : frames) {
    JoinRequest request;
    Roster roster;
    Agreement agreement;
    if (JoinRequest::read(frame.body, &request)) (void)request.finish();
    if (Roster::read(frame.body, &roster)) (void)roster.finish();
    if (Agreement::read(frame.body, &agreement)) (void)agreement.finish();
  }
}

Message message_of(std::string_view data) {
  static constexpr std::string_view cut("\xff\xfe", 2);
  Message message;
  size_t end = std::min(data.find(cut), data.size());
  message.head = Bytes::copy(data.substr(0, end));
  while (end < data.size()) {
    data.remove_prefix(end + cut.size());
    end = std::min(data.find(cut), data.size());
    message.attachments.push_back(Bytes::copy(data.substr(0, end)));
  }
  return message;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  Header header;
  std::vector<Frame> frames;
  if (!parse(message_of({reinterpret_cast<const char*>(data) + 1, size - 1}), &header, &frames).ok()) return 0;
  switch (data[0] % 7) {
    case 0:
      feed_rounds(frames, false);
      break;
    case 1:
      feed_rounds(frames, true);
      break;
    case 2:
      feed_client(frames);
      break;
    case 3:
      feed_directory(frames, true);
      break;
    case 4:
      feed_directory(frames, false);
      break;
    case 5:
      feed_registry(frames);
      break;
    default:
      feed_bodies(frames);
  }
  return 0;
}
