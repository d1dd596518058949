// What is decided once for the whole run, and told to everybody before it is used: keys, configuration, the seal that
// ends configuring, and barriers.
//
// Requests go up: worker -> its party's first server -> the WAN's first server, which decides. Notices come down: first
// to the WAN's other servers, and when they have it, to its members and through them into the parties. So whoever has
// heard of a key may use it: all servers know it already.
#pragma once
#include <functional>
#include <map>
#include <set>

#include "key_table.h"
#include "link.h"
#include "roster.h"

namespace geomx {

class Directory {
 public:
  struct Place {
    Link* above = nullptr;  // towards the WAN's first server; null: we are it, or below it in no domain
    Link* wan = nullptr;    // the root's own domain
    uint32_t num_servers = 0, num_members = 0;  // of that domain
    Link* party = nullptr;                      // a server's LAN, if it has one
    uint32_t num_party_members = 0;
    bool is_root = false, is_first_server = false;  // the first server of a LAN passes notices into it
    MemberSet party_observers, wan_observers;
    bool central_contributes = false;  // the central party's workers take part in world barriers
  };
  struct Events {
    std::function<void(KeySpec)> on_spec;
    std::function<void(const std::string& what, const std::string& value)> on_configured;
    std::function<void()> on_sealed;
    std::function<void(const std::string& what, const std::string& value, const std::string& why)> on_refused;
    std::function<void(bool world, uint32_t number)> on_barrier_done;
    std::function<void(const std::string&)> fail;
    std::function<std::string(Tier, NodeId)> name_of;
  };
  Directory(Place place, Settings settings, Events events);

  // A frame of ours, from this tier; false if it is of another room.
  bool take(Tier tier, NodeId from, const Frame& frame);
  // A request of this node itself.
  void request(Frame frame);
  void member_left(Tier tier, uint32_t contributor);
  // Whom barriers have waited for, in words, told to those who wait.
  void tell_who_is_missing();

  static Frame declare(const KeySpec& spec, bool is_authority, const std::string& who);
  static Frame configure(const std::string& what, const std::string& value, const std::string& who);
  static Frame barrier(bool world, uint32_t number);

 private:
  struct Entry {
    std::vector<std::pair<KeySpec, std::string>> claims;  // the tensor, and who says so
    bool is_sealed = false;
    Frame notice;
  };
  struct Barrier {
    std::map<uint32_t, MemberSet> in;  // number -> contributors that are there
  };
  struct Notice {
    Frame frame;
    std::set<NodeId> owed;
  };
  void decide(Tier tier, NodeId from, const Frame& request);
  void decide_key(Tier tier, NodeId from, const Frame& request);
  void decide_configuration(Tier tier, NodeId from, const Frame& request);
  void refuse(Tier tier, NodeId to, const std::string& what, const std::string& value, const std::string& why);
  uint32_t publish(Frame frame);  // the notice's number
  void deliver(const Frame& frame);
  void take_notice(Tier tier, NodeId from, const Frame& frame);
  void apply(const Frame& frame);
  void tell_party(const Frame& frame);
  void reply(Tier tier, NodeId to, const Frame& frame);
  void take_barrier(Tier tier, NodeId from, const Frame& frame);
  void judge_barriers();
  void judge_party(bool world);
  void judge_world();
  MemberSet party_expected(bool world) const;
  MemberSet world_expected() const;
  void finish_barrier(bool world, uint32_t number);

  Place place_;
  Settings settings_;
  Events events_;
  std::map<uint64_t, Entry> entries_;
  uint32_t next_index_ = 0, next_notice_ = 1;
  std::map<uint32_t, Notice> pending_;             // not on all servers yet
  std::map<std::string, uint32_t> configured_by_;  // what -> number of its notice
  bool is_sealed_ = false;
  Barrier party_barriers_[2],
      world_barriers_;  // party: by world; what a party waits for itself, and its share of the world's
  std::set<uint32_t> passed_up_;
  uint32_t world_done_ = 0;  // the newest world barrier that everybody who is waited for has passed
  MemberSet party_left_, wan_left_;
};

}  // namespace geomx
