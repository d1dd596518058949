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
  uint32_t num_servers;
  uint32_t contributor;                           // this node's bit in contributor sets
  std::function<void(const std::string&)> fail;   // ends the run with this sentence
};

}  // namespace geomx
