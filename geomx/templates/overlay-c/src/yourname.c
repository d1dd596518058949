/* The overlay "yourname": members 2i and 2i + 1 are a pair. Contributions of the second merge at the first before they
 * go to the server, values reach the second through the first. Where the other can't be reached, doesn't contribute or
 * has left, everybody goes straight to the server. */
#include <geomx/plugin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct pairs {
  uint32_t self, num_members;
  uint64_t hold_ns, bypass_ns;
  const gx_host* host;
  uint8_t relays[]; /* of each member: others may send to it, and it contributes */
} pairs;

static gx_status fail(gx_error* error, gx_status status, const char* sentence) {
  snprintf(error->message, sizeof(error->message), "%s", sentence);
  return status;
}

static int is_first(uint32_t member) { return member % 2 == 0; }

/* Does this pair exist, with two members that can work together? */
static int is_pair(const pairs* mine, uint32_t first) {
  return first + 1 < mine->num_members && mine->relays[first] && mine->relays[first + 1];
}

static gx_status next_hop(gx_overlay* overlay, const gx_slice* part, const gx_held* held, gx_hop* out,
                          gx_error* error) {
  (void)part, (void)error;
  const pairs* mine = overlay->private_data;
  const uint32_t first = mine->self & ~1u;
  *out = (gx_hop){.kind = GX_HOP_SEND, .node = held->root};
  if ((mine->self & GX_SERVER) != 0 || mine->self >= mine->num_members || !is_pair(mine, first)) return GX_OK;
  if (!is_first(mine->self)) {
    out->node = first;
  } else if (held->num_contributors < 2 && mine->host->now_ns(mine->host) < held->since_ns + mine->hold_ns) {
    *out = (gx_hop){.kind = GX_HOP_WAIT, .until_ns = held->since_ns + mine->hold_ns};
  }
  return GX_OK;
}

/* `owed` is ascending, but for the central party, which comes first and has the number num_members. */
static gx_status route(gx_overlay* overlay, const gx_slice* part, uint64_t bytes, const uint32_t* owed, size_t count,
                       gx_step* out, gx_error* error) {
  (void)part, (void)bytes, (void)error;
  const pairs* mine = overlay->private_data;
  for (size_t i = 0; i < count; ++i) {
    out[i] = (gx_step){.member = owed[i]};
    if (owed[i] >= mine->num_members) continue;
    if (is_first(owed[i]) && i + 1 < count && owed[i + 1] == owed[i] + 1 && is_pair(mine, owed[i])) out[i].below = 1;
  }
  return GX_OK;
}

static uint64_t bypass_ns(gx_overlay* overlay) { return ((const pairs*)overlay->private_data)->bypass_ns; }

static void on_left(gx_overlay* overlay, uint32_t member) {
  pairs* mine = overlay->private_data;
  if (member < mine->num_members) mine->relays[member] = 0;
}

static void release(gx_overlay* overlay) { free(overlay->private_data); }

static gx_status read_params(gx_params params, pairs* mine, gx_error* error) {
  for (size_t i = 0; i < params.count; ++i) {
    const gx_param* param = &params.items[i];
    if (param->kind == 's') return fail(error, GX_EINVAL, "expected numbers as parameters, got a word");
    const uint64_t ns = (uint64_t)((param->kind == 'i' ? (double)param->i : param->f) * 1e6);
    if (strcmp(param->name, "hold_ms") == 0)
      mine->hold_ns = ns;
    else if (strcmp(param->name, "bypass_ms") == 0)
      mine->bypass_ns = ns;
    else
      return fail(error, GX_EINVAL, "the parameters are hold_ms and bypass_ms, another was given");
  }
  return GX_OK;
}

static gx_status make(void* user, const gx_host* host, const gx_overlay_site* site, gx_params params, gx_overlay* out,
                      gx_error* error) {
  (void)user;
  pairs* mine = calloc(1, sizeof(pairs) + site->num_members);
  if (mine == NULL) return fail(error, GX_EINTERNAL, "no memory");
  mine->self = site->self;
  mine->num_members = site->num_members;
  mine->host = host;
  for (uint32_t i = 0; i < site->num_members; ++i) mine->relays[i] = site->contributes[i] && site->reachable[i];
  const gx_status status = read_params(params, mine, error);
  if (status != GX_OK) {
    free(mine);
    return status;
  }
  out->private_data = mine;
  out->struct_size = sizeof(gx_overlay);
  out->next_hop = next_hop;
  out->route = route;
  out->bypass_ns = bypass_ns;
  out->on_left = on_left;
  out->release = release;
  return GX_OK;
}

gx_status geomx_plugin_v1(const gx_host* host, gx_registrar* registrar, gx_error* error) {
  (void)host;
  return registrar->add_overlay(registrar, "yourname", make, NULL, error);
}
