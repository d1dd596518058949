// What the rooms of a node share in one domain.
#pragma once
#include "counters.h"
#include "key_table.h"
#include "link.h"
#include "policies.h"
#include "reactor.h"

namespace geomx {

struct Side {
  Reactor& reactor;
  Link& link;
  KeyTable& keys;
  Policies& policies;
  Counters& counters;
  Tier tier;
  NodeId self;
  uint32_t num_servers, num_members;
  uint32_t contributor;                          // this node's bit in contributor sets
  std::function<void(const std::string&)> fail;  // ends the run with this sentence
  Trace* trace = nullptr;                        // null: nobody wants a timeline

  TraceEvent event(TraceKind kind, Direction direction, uint32_t key, uint32_t part, uint32_t round) const {
    return {kind, tier, direction, kNobody, key, part, round, 0, 0};
  }
  // A server of the central party is a contributor to its own rounds: the one behind the members.
  uint32_t contributor_of(NodeId node) const { return node.role == Role::member ? node.rank : num_members; }
  NodeId node_of(uint32_t contributor) const { return contributor < num_members ? member(contributor) : self; }
  // Which server of this domain has a part. Placement is decided for the WAN's servers; a party's own server, where
  // there is only one, has all.
  uint32_t server_of(const Key& key, uint32_t part) const { return key.parts[part].server % num_servers; }
};

}  // namespace geomx
