// What stands above a global server's rounds: when the updater steps, and what there is before the first value.
#include "core/root.h"

#include <doctest/doctest.h>

#include "core/identity_codec.h"
#include "core/sim.h"

using namespace geomx;

namespace {

class Subtract : public Updater {
 public:
  Status step(const PartView& part, uint32_t, const void* sum, void* weights) override {
    for (uint64_t i = 0; i < part.length; ++i) static_cast<float*>(weights)[i] -= static_cast<const float*>(sum)[i];
    ++steps;
    newest.assign(static_cast<float*>(weights), static_cast<float*>(weights) + part.length);
    return {};
  }
  int steps = 0;
  std::vector<float> newest;
};

// A global server with one member and a key of one part.
struct Bench {
  explicit Bench(bool has_initial) {
    REQUIRE(transport.bind("", 0).ok());
    PeerId peer;
    REQUIRE(transport.connect("member0", &peer).ok());
    link.set_peer(member(0), peer);
    KeySpec spec;
    spec.name = "k";
    spec.id = key_id("k");
    spec.shape = {2};
    spec.shards = {{0, 0, 2}};
    spec.has_initial = has_initial;
    Key& key = keys.add(spec);
    for (auto& tier : key.codec)
      for (auto& codec : tier) codec = std::shared_ptr<Codec>(&identity_codec(), [](Codec*) {});
    root.serve(&aggregator);
    auto made = std::make_unique<Subtract>();
    updater = made.get();
    root.seal(std::move(made));
  }
  void push(float value) {
    Frame frame(FrameKind::push, 0, 0, 1);
    frame.codec = kRawWireId;
    frame.contributors.insert(0);
    const float values[2] = {value, value};
    frame.body = Bytes::copy(values, sizeof(values));
    aggregator.take_push(member(0), std::move(frame));
  }

  sim::World world{1};
  sim::SimReactor reactor{world};
  Counters counters;
  Policies policies;
  KeyTable keys;
  sim::SimTransport transport{world, reactor, "server"};
  Link link{reactor, transport, Tier::wan, counters};
  std::vector<std::string> failures;
  Side side{reactor, link, keys, policies, counters, Tier::wan, server(0), 1, 1, 1, [this](const std::string& why) {
              failures.push_back(why);
            }};
  Root root{side, [] {}};
  Aggregator aggregator{side, 1, {}, 0, {}, root};
  Subtract* updater = nullptr;
};

}  // namespace

TEST_CASE("a round that closes before the authority's value is here waits for it") {
  Bench at(true);
  at.push(2);
  CHECK(at.failures.empty());
  CHECK(at.updater->steps == 0);
  const float initial[2] = {10, 20};
  at.root.initial(0, 0, Bytes::copy(initial, sizeof(initial)));
  CHECK(at.updater->steps == 1);
  CHECK(at.failures.empty());
  CHECK(at.updater->newest == std::vector<float>{8, 18});
}

TEST_CASE("where nobody will initialise a key, an updater has nothing to step: the run ends in a sentence") {
  Bench at(false);
  at.push(2);
  REQUIRE(at.failures.size() == 1);
  CHECK(at.failures[0] == "key \"k\" has no initial value, which a server optimizer needs; init it first");
}
