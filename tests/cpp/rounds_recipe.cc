// See rounds_recipe.h.
#include "rounds_recipe.h"

#include "core/identity_codec.h"

namespace geomx::rounds {
namespace {

CodecRegistry loaded(const char* library) {
  CodecRegistry made;
  PluginHooks hooks;
  hooks.metric = [](const std::string&, double) {};
  made.set_hooks(std::move(hooks));
  REQUIRE(made.load(library).message() == "");
  return made;
}

}  // namespace

Recipe::Recipe(uint64_t seed, Shape shape, Mutation mutation)
    : seed_(seed), shape_(std::move(shape)), mutation_(mutation) {
  for (uint32_t k = 0; k < shape_.keys; ++k) specs_.push_back(draw_spec(k));
}

uint64_t Recipe::draw(std::initializer_list<uint64_t> values) const { return mix(values, mix({seed_})); }

KeySpec Recipe::draw_spec(uint32_t index) const {
  KeySpec spec;
  spec.index = index;
  spec.name = "key" + std::to_string(index);
  spec.id = key_id(spec.name);
  const uint64_t length = draw({index, 7}) % 40;
  spec.shape = {length};
  spec.part_length = 7;
  uint64_t at = 0;
  for (uint32_t s = 0; s < shape_.servers; ++s) {
    const uint64_t share = s + 1 == shape_.servers ? length - at : length / shape_.servers;
    spec.shards.push_back({s, at, share});
    at += share;
  }
  REQUIRE(spec.check(shape_.servers).ok());
  return spec;
}

void Recipe::seal(KeyTable& keys) const {
  for (const KeySpec& spec : specs_) {
    Key& key = keys.add(spec);
    const std::shared_ptr<Codec> identity(&identity_codec(), [](Codec*) {});
    for (auto& tier : key.codec)
      for (auto& codec : tier) codec = identity;
    if (!shape_.sparse) continue;
    key.codec[size_t(Tier::wan)][size_t(Direction::up)] = std::make_shared<SparseCodec>(CodecScope::tensor);
    if (shape_.deltas) {
      key.codec[size_t(Tier::wan)][size_t(Direction::down)] = std::make_shared<SparseCodec>(CodecScope::shard, false);
      key.content[size_t(Tier::wan)][size_t(Direction::down)] = Content::delta;
    } else if (!shape_.mixed)
      key.codec[size_t(Tier::wan)][size_t(Direction::down)] = std::make_shared<SparseCodec>(CodecScope::shard);
  }
}

void Recipe::set_policies(End& end) const {
  if (draw({41}) % 2)
    end.policies.scheduler = std::make_unique<TurnScheduler>(CreditRule{1, false});
  else
    end.policies.scheduler = std::make_unique<RandomRank>();
  end.link.set_credit(end.policies.scheduler->credit());
  if (!mutation_.acknowledges) end.link.stop_acknowledging();
  if (end.side.tier == Tier::lan) return;
  if (shape_.lossy) end.policies.transport = make_transport();
  if (shape_.overlay) end.use(make_overlay(end));
}

std::unique_ptr<OverlayPolicy> Recipe::make_overlay(End& end) const {
  if (shape_.relays.empty()) return std::make_unique<RandomTree>(seed_, shape_.parties);
  static CodecRegistry registry = loaded(OVERLAY_LIBRARY);
  OverlaySite site;
  site.self = end.side.self;
  site.num_members = shape_.parties;
  site.num_servers = shape_.servers;
  for (uint32_t rank = 0; rank < shape_.parties; ++rank) {
    site.contributors.insert(rank);
    if (!shape_.faults || draw({rank, 31}) % 3) site.reachable.insert(rank);
  }
  site.now_us = [&end] { return end.side.reactor.now_us(); };
  site.send = [&end](NodeId to, Bytes words) {
    Frame frame(FrameKind::overlay);
    frame.body = std::move(words);
    end.link.send(to, std::move(frame));
  };
  site.wake = [&end](uint32_t key, uint32_t part) {
    if (end.client && end.client->relay()) end.client->relay()->wake(key, part);
  };
  const Params params{{"max_greed_rate", 0.7}, {"hold_ms", 9.0}, {"bypass_ms", 30.0}, {"seed", int64_t(seed_)}};
  std::unique_ptr<OverlayPolicy> policy;
  REQUIRE(registry.make_overlay(shape_.relays, params, std::move(site), &policy).message() == "");
  return policy;
}

std::unique_ptr<TransportPolicy> Recipe::make_transport() const {
  if (shape_.plugin.empty()) return std::make_unique<LossyHalf>();
  static CodecRegistry registry = loaded(TRANSPORT_LIBRARY);
  std::unique_ptr<TransportPolicy> policy;
  const Params params{{"k", 0.4}, {"channels", int64_t(2)}, {"deadline_ms", 3.0}, {"wait_ms", 2.0}};
  REQUIRE(registry.make_transport(shape_.plugin, params, &policy).message() == "");
  return policy;
}

void Recipe::set_mutations(End& end) const {
  if (end.client && !mutation_.gives_back) end.client->stop_giving_back();
  if (!mutation_.checks_contributors) {
    if (end.client && end.client->relay()) end.client->relay()->stop_checking_contributors();
    if (end.aggregator) end.aggregator->stop_checking_contributors();
  }
  if (end.aggregator && !mutation_.waits_for_ends) end.aggregator->stop_waiting_for_ends();
}

}  // namespace geomx::rounds
