// Rosters and settings on the wire: see roster.h.
#include "roster.h"

namespace geomx {
namespace {

constexpr uint64_t kMaxEntries = 1u << 16;

void write_entry(Writer& out, const RosterEntry& e) {
  out.varint(e.id.packed()).text(e.name).text(e.party).text(e.address);
  out.u8(e.is_observer).u8(e.has_master).u8(e.is_reachable).varint(e.num_workers);
}

bool read_entries(Reader& in, std::vector<RosterEntry>* entries) {
  const uint64_t count = in.varint();
  for (uint64_t i = 0; in.ok() && i < count && count <= kMaxEntries; ++i) {
    RosterEntry e;
    const uint32_t id = in.varint32();
    e.id = NodeId{Role(id & 3), id >> 2};
    e.name = in.text();
    e.party = in.text();
    e.address = in.text();
    e.is_observer = in.u8();
    e.has_master = in.u8();
    e.is_reachable = in.u8();
    e.num_workers = in.varint32();
    entries->push_back(std::move(e));
  }
  return in.ok() && count <= kMaxEntries;
}

}  // namespace

void write_settings(Writer& out, const Settings& settings) {
  out.varint(settings.size());
  for (const auto& [name, setting] : settings) out.text(name).text(setting.value).text(setting.origin);
}

bool read_settings(Reader& in, Settings* settings) {
  const uint64_t count = in.varint();
  for (uint64_t i = 0; in.ok() && i < count && count <= kMaxEntries; ++i) {
    const std::string name = in.text();
    Setting setting;
    setting.value = in.text();
    setting.origin = in.text();
    (*settings)[name] = std::move(setting);
  }
  return in.ok() && count <= kMaxEntries;
}

Status unite(Settings* all, const Settings& more) {
  for (const auto& [name, setting] : more) {
    const auto [found, is_new] = all->emplace(name, setting);
    if (!is_new && found->second.value != setting.value)
      return Status::error(name + ": " + found->second.origin + " has " + found->second.value + ", " + setting.origin +
                           " has " + setting.value + "; set it the same on both, or on one only");
  }
  return {};
}

Bytes JoinRequest::finish() const {
  Writer out;
  out.u8(uint8_t(role)).u32(uint32_t(wanted_rank)).text(title).text(party).text(host).text(address);
  out.varint(pid).varint(num_servers).varint(num_members).u8(is_observer).u8(has_master);
  out.u8(is_reachable).u8(central_trains).varint(num_workers);
  write_settings(out, settings);
  return out.finish();
}

bool JoinRequest::read(const Bytes& body, JoinRequest* out) {
  Reader in(body);
  const uint8_t role = in.u8();
  out->role = Role(role);
  out->wanted_rank = int32_t(in.u32());
  out->title = in.text();
  out->party = in.text();
  out->host = in.text();
  out->address = in.text();
  out->pid = in.varint32();
  out->num_servers = in.varint32();
  out->num_members = in.varint32();
  out->is_observer = in.u8();
  out->has_master = in.u8();
  out->is_reachable = in.u8();
  out->central_trains = in.u8();
  out->num_workers = in.varint32();
  return read_settings(in, &out->settings) && in.done() && (role == 1 || role == 2);
}

Bytes Roster::finish() const {
  Writer out;
  out.varint(self.packed()).varint(servers.size());
  for (const RosterEntry& e : servers) write_entry(out, e);
  out.varint(members.size());
  for (const RosterEntry& e : members) write_entry(out, e);
  write_settings(out, settings);
  return out.finish();
}

bool Roster::read(const Bytes& body, Roster* out) {
  Reader in(body);
  const uint32_t self = in.varint32();
  out->self = NodeId{Role(self & 3), self >> 2};
  return read_entries(in, &out->servers) && read_entries(in, &out->members) && read_settings(in, &out->settings) &&
         in.done();
}

const RosterEntry* Roster::find(NodeId id) const {
  for (const auto* entries : {&servers, &members})
    for (const RosterEntry& e : *entries)
      if (e.id == id) return &e;
  return nullptr;
}

std::string Roster::name_of(NodeId id) const {
  const RosterEntry* entry = find(id);
  if (entry) return entry->name;
  return id.role == Role::scheduler ? "the scheduler" : "an unknown node";
}

Bytes Agreement::finish() const {
  Writer out;
  write_settings(out, settings);
  out.varint(party_rank).varint(num_parties).varint(num_all_workers).varint(first_global_rank);
  out.varint(num_global_servers).u8(has_master).text(authority);
  return out.finish();
}

bool Agreement::read(const Bytes& body, Agreement* out) {
  Reader in(body);
  if (!read_settings(in, &out->settings)) return false;
  out->party_rank = in.varint32();
  out->num_parties = in.varint32();
  out->num_all_workers = in.varint32();
  out->first_global_rank = in.varint32();
  out->num_global_servers = in.varint32();
  out->has_master = in.u8();
  out->authority = in.text();
  return in.done();
}

}  // namespace geomx
