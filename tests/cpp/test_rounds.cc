// The design's invariants over random schedules: the real link, lane, client, relay and aggregator of a two-tier
// cluster (rounds_cluster.h), with a sparse whole-tensor codec in both directions, lossy parts, a relay overlay and a
// priority scheduler with a credit of one part all on at once (rounds_recipe.h), while messages are lost, reordered and
// doubled and workers leave early. GEOMX_SEEDS sets how many schedules run, GEOMX_SEED replays one.
#include <doctest/doctest.h>

#include <cstdlib>

#include "rounds_cluster.h"

using namespace geomx::rounds;

namespace {

uint64_t number_from(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void check_seeds(Shape shape, uint64_t count) {
  const uint64_t only = number_from("GEOMX_SEED", 0);
  for (uint64_t seed = only ? only : 1; seed <= (only ? only : count); ++seed) {
    const std::string fault = Cluster(seed, shape, {}).run();
    INFO("replay with GEOMX_SEED=", seed);
    REQUIRE(fault == "");
  }
}

bool is_noticed(Mutation mutation) {
  for (uint64_t seed = 1; seed <= 50; ++seed)
    if (!Cluster(seed, {}, mutation).run().empty()) return true;
  return false;
}

}  // namespace

TEST_CASE("invariants hold with a sparse codec, lossy parts, an overlay and priorities all on") {
  check_seeds({}, number_from("GEOMX_SEEDS", 2000));
}

TEST_CASE("invariants hold with each left out") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 10;
  for (int off = 0; off < 8; ++off) {
    Shape shape;
    shape.sparse = !(off & 1);
    shape.lossy = !(off & 2);
    shape.overlay = !(off & 4);
    CAPTURE(off);
    check_seeds(shape, count);
  }
}

TEST_CASE("invariants hold with a central party that trains, with each left out") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 20;
  for (int off = 0; off < 8; ++off) {
    Shape shape;
    shape.central = true;
    shape.sparse = !(off & 1);
    shape.lossy = !(off & 2);
    shape.overlay = !(off & 4);
    CAPTURE(off);
    check_seeds(shape, count);
  }
}

// There is nothing to merge on the way, and each party has values of its own.
TEST_CASE("invariants hold in mixed sync, and nobody is further ahead than the bound") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 20;
  for (int off = 0; off < 8; ++off) {
    Shape shape;
    shape.mixed = true;
    shape.overlay = false;
    shape.sparse = !(off & 1);
    shape.lossy = !(off & 2);
    shape.central = off & 4;
    CAPTURE(off);
    check_seeds(shape, count);
  }
}

TEST_CASE("what members make of differences is what servers take for it, with each left out") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 20;
  for (int off = 0; off < 16; ++off) {
    Shape shape;
    shape.deltas = true;
    shape.mixed = off & 1;
    shape.lossy = !(off & 2);
    shape.overlay = !shape.mixed && !(off & 4);
    shape.central = off & 8;
    CAPTURE(off);
    check_seeds(shape, count);
  }
}

TEST_CASE("invariants hold with a transport that is a plugin, over datagrams and over the stream, with each left out") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 20;
  for (int off = 0; off < 8; ++off) {
    Shape shape;
    shape.plugin = "dgt";
    shape.sparse = !(off & 1);
    shape.overlay = !(off & 2);
    shape.datagrams = off & 4;
    CAPTURE(off);
    check_seeds(shape, count);
    shape.mixed = true;
    shape.overlay = false;
    check_seeds(shape, count / 2);
  }
}

TEST_CASE("invariants hold with an overlay that is a plugin, frozen relays and a broken link, while members leave") {
  const uint64_t count = number_from("GEOMX_SEEDS", 2000) / 10;
  for (int off = 0; off < 8; ++off) {
    Shape shape;
    shape.relays = "tsengine";
    shape.parties = 5;
    shape.faults = !(off & 1);
    shape.sparse = !(off & 2);
    shape.lossy = off & 4;
    CAPTURE(off);
    check_seeds(shape, count / 8);
    shape.central = true;
    check_seeds(shape, count / 8);
  }
}

TEST_CASE("turning off what keeps an invariant is noticed") {
  Mutation mutation;
  SUBCASE("give-back") { mutation.gives_back = false; }
  SUBCASE("contributor sets") { mutation.checks_contributors = false; }
  SUBCASE("end marks") { mutation.waits_for_ends = false; }
  SUBCASE("credit release") { mutation.acknowledges = false; }
  CHECK(is_noticed(mutation));
}
