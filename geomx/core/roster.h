// What the nodes of a domain tell each other while they join. Pure data and its form on the wire.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "codec.h"
#include "wire.h"

namespace geomx {

// An option that somebody set explicitly, and who.
struct Setting {
  std::string value, origin;
};
using Settings = std::map<std::string, Setting>;
void write_settings(Writer& out, const Settings& settings);
bool read_settings(Reader& in, Settings* settings);
// Adds `more`; two different values of one option are a sentence that names both nodes.
Status unite(Settings* all, const Settings& more);

// A node asks to be let in.
struct JoinRequest {
  Role role = Role::member;
  int32_t wanted_rank = -1;
  std::string title;  // "worker", "local server", "global server", "master worker"
  std::string party;
  std::string host, address;  // where others reach it
  uint32_t pid = 0;
  uint32_t num_servers = 0, num_members = 0;  // as this node was told; 0: not told
  bool is_observer = false, has_master = false;
  bool is_reachable = true;     // by other members: overlays may choose it as a receiver
  bool central_trains = false;  // said by global servers for their party; workers may say it too
  uint32_t num_workers = 0;     // that train, behind a local server
  Settings settings;

  Bytes finish() const;
  static bool read(const Bytes& body, JoinRequest* out);
};

struct RosterEntry {
  NodeId id;
  std::string name, party, address;  // name: "worker 1 of party A"
  bool is_observer = false, has_master = false, is_reachable = true;
  uint32_t num_workers = 0;
};

struct Roster {
  NodeId self;
  std::vector<RosterEntry> servers, members;
  Settings settings;

  Bytes finish() const;
  static bool read(const Bytes& body, Roster* out);
  const RosterEntry* find(NodeId id) const;
  std::string name_of(NodeId id) const;
};

// What the whole deployment agreed on, as it is passed down into a party.
struct Agreement {
  Settings settings;
  uint32_t party_rank = 0, num_parties = 0;
  uint32_t num_all_workers = 0, first_global_rank = 0;  // of the party's workers
  uint32_t num_global_servers = 0;
  bool has_master = false;  // somewhere there is a master worker: it is the authority
  std::string authority;    // its name, for sentences

  Bytes finish() const;
  static bool read(const Bytes& body, Agreement* out);
};

}  // namespace geomx
