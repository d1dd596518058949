// Keys: identities, shards and parts, and what is refused when they come from elsewhere.
#include "core/key_spec.h"

#include <doctest/doctest.h>

#include <random>
#include <unordered_map>

#include "core/key_table.h"

using namespace geomx;

namespace {

KeySpec spread(uint64_t length, uint32_t servers, uint64_t part_length) {
  KeySpec spec;
  spec.name = "k";
  spec.shape = {length};
  spec.part_length = part_length;
  for (uint32_t s = 0; s < servers; ++s) {
    const uint64_t from = length * s / servers, to = length * (s + 1) / servers;
    spec.shards.push_back({s, from, to - from});
  }
  return spec;
}

bool reads(const KeySpec& spec) {
  Writer out;
  spec.write(out);
  const Bytes bytes = out.finish();
  Reader in(bytes);
  KeySpec again;
  return KeySpec::read(in, &again) && in.done();
}

}  // namespace

TEST_CASE("parts cover the tensor once, in order, each on its shard's server") {
  for (uint32_t servers = 1; servers <= 17; ++servers) {
    for (uint64_t length : {0u, 1u, 2u, 16u, 17u, 100u, 1001u}) {
      for (uint64_t part_length : {0u, 1u, 7u, 64u, 5000u}) {
        const KeySpec spec = spread(length, servers, part_length);
        CAPTURE(servers);
        CAPTURE(length);
        CAPTURE(part_length);
        REQUIRE(spec.check(servers).message() == "");
        uint64_t next = 0;
        for (const PartSpec& part : spec.parts()) {
          CHECK(part.offset == next);
          next += part.length;
          CHECK((part_length == 0 || part.length <= part_length));
          const Shard& shard = spec.shards[part.server];
          CHECK(part.offset >= shard.offset);
          CHECK(part.offset + part.length <= shard.offset + shard.length);
        }
        CHECK(next == length);
        CHECK(spec.parts().size() >= servers);
      }
    }
  }
}

TEST_CASE("an element at a shard's boundary belongs to the shard that begins there") {
  const KeySpec spec = spread(10, 3, 2);  // 0..3 3..6 6..10
  const std::vector<PartSpec> parts = spec.parts();
  std::vector<uint32_t> owner(10);
  for (const PartSpec& part : parts)
    for (uint64_t i = part.offset; i < part.offset + part.length; ++i) owner[i] = part.server;
  CHECK(owner == std::vector<uint32_t>{0, 0, 0, 1, 1, 1, 2, 2, 2, 2});
  CHECK(parts.size() == 2 + 2 + 2);
}

TEST_CASE("bytes of a tensor behind 4 GiB are counted in 64 bits") {
  KeySpec spec = spread(uint64_t(3) << 31, 2, uint64_t(1) << 30);
  Key key;
  key.spec = spec;
  key.parts = spec.parts();
  CHECK(key.parts.back().offset == (uint64_t(3) << 31) - (uint64_t(1) << 30));
  CHECK(key.sum_bytes(0) == uint64_t(1) << 32);
  CHECK(key.view(uint32_t(key.parts.size() - 1), 1, Tier::lan, Direction::up).offset == key.parts.back().offset);
}

TEST_CASE("refused placements say why") {
  KeySpec spec = spread(10, 2, 0);
  CHECK(spec.check(1).message() == "key \"k\": its placement names server 1, but there are 1");
  spec.shards[1].offset = 6;
  CHECK(spec.check(2).message() == "key \"k\": expected a shard from element 5 but got one from 6");
  spec.shards.pop_back();
  CHECK(spec.check(2).message() == "key \"k\": its shards cover 5 of 10 elements");
  spec.shards.clear();
  CHECK(spec.check(2).message() == "key \"k\": its shards cover 0 of 10 elements");
}

TEST_CASE("names have identities of their own, the same everywhere") {
  CHECK(key_id("") == 0xcbf29ce484222325u);
  CHECK(key_id("a") == 0xaf63dc4c8601ec8cu);  // FNV-1a, 64 bits
  CHECK(key_id("#3") != key_id("3"));
  std::mt19937_64 random(1);
  std::unordered_map<uint64_t, std::string> seen;
  for (int i = 0; i < 200000; ++i) {
    std::string name = "layer" + std::to_string(random() % 1000) + "." + std::to_string(random());
    const auto [found, is_new] = seen.emplace(key_id(name), name);
    CHECK((is_new || found->second == name));
  }
  for (int i = 0; i < 100000; ++i) {
    const std::string name = "#" + std::to_string(i);
    const auto [found, is_new] = seen.emplace(key_id(name), name);
    CHECK((is_new || found->second == name));
  }
}

TEST_CASE("a spec travels whole, and bytes that aren't one are refused") {
  KeySpec spec = spread(1000, 3, 7);
  spec.name = "fc1.weight";
  spec.id = key_id(spec.name);
  spec.index = 77;
  spec.shape = {10, 4, 25};
  spec.dtype = DType::bf16;
  spec.has_initial = false;
  Writer out;
  spec.write(out);
  const Bytes bytes = out.finish();
  Reader in(bytes);
  KeySpec again;
  REQUIRE(KeySpec::read(in, &again));
  CHECK(in.done());
  CHECK(again.same_tensor(spec));
  CHECK(again.index == 77);
  CHECK(again.id == spec.id);
  CHECK(again.shards == spec.shards);
  CHECK(again.part_length == 7);
  CHECK_FALSE(again.has_initial);
  CHECK(again.tensor_text() == "bfloat16 (10, 4, 25)");
  for (size_t size = 0; size < bytes.size(); ++size) {
    Reader cut(bytes.text().substr(0, size));
    KeySpec none;
    CHECK_FALSE((KeySpec::read(cut, &none) && cut.done()));
  }
}

TEST_CASE("a spec that would need endless memory is refused") {
  KeySpec spec = spread(1000, 1, 7);
  REQUIRE(reads(spec));
  SUBCASE("elements") { spec.shape = {uint64_t(1) << 40, uint64_t(1) << 40}; }
  SUBCASE("a product that overflows") { spec.shape = {uint64_t(1) << 32, uint64_t(1) << 32, 0}; }
  SUBCASE("parts") {
    spec.shape = {uint64_t(1) << 40};
    spec.shards = {{0, 0, uint64_t(1) << 40}};
    spec.part_length = 1;
  }
  SUBCASE("a shard") { spec.shards[0].length = ~uint64_t(0); }
  SUBCASE("the index") { spec.index = ~uint32_t(0); }
  SUBCASE("dimensions") { spec.shape.assign(33, 1); }
  CHECK_FALSE(reads(spec));
}

TEST_CASE("a scalar has one element and a place of its own") {
  KeySpec spec;
  spec.shards = {{0, 0, 1}};
  CHECK(spec.length() == 1);
  CHECK(spec.check(1).ok());
  CHECK(spec.tensor_text() == "float32 ()");
}
