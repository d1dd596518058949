/* geomx/plugin.h -- the only header that a native GeoMX plugin includes. C11 or C++17; nothing of the core is linked.
 *
 * A plugin is a shared library with one exported function, geomx_plugin_v1. It is given what the host offers and a
 * registrar, and adds makers by name; a maker fills a table of functions for one instance.
 *
 * Ownership: every pointer that is passed in is borrowed for the length of the call, unless a comment says otherwise.
 * Threads:   the host calls one instance from one thread at a time; different instances may run at once.
 * Errors:    return GX_OK or another gx_status; on failure write a sentence to err->message. Never throw or exit.
 * Growth:    structs begin with struct_size, and fields are only ever appended. Who makes a struct sets struct_size to
 *            its own sizeof; who reads it uses no field beyond that. Functions that a table doesn't need stay null.
 */
#ifndef GEOMX_PLUGIN_H_
#define GEOMX_PLUGIN_H_
#include <stddef.h>
#include <stdint.h>
#ifdef __cplusplus
extern "C" {
#endif

#define GX_ABI_VERSION 1u
#define GX_FOURCC(a, b, c, d) \
  ((uint32_t)(uint8_t)(a) | (uint32_t)(uint8_t)(b) << 8 | (uint32_t)(uint8_t)(c) << 16 | (uint32_t)(uint8_t)(d) << 24)
#define GX_EXPORT __attribute__((visibility("default")))

typedef int32_t gx_status;
enum {
  GX_OK = 0,
  GX_EINVAL = 1,       /* an option or a call makes no sense */
  GX_ENOSPC = 2,       /* the buffer is too small; its size says how much is needed */
  GX_ECORRUPT = 3,     /* bytes from the wire that can't be ours */
  GX_EUNSUPPORTED = 4, /* a type, or a host too old */
  GX_EINTERNAL = 5
};

typedef uint8_t gx_dtype;
enum { GX_F32 = 0, GX_F16 = 1, GX_BF16 = 2, GX_F64 = 3, GX_I32 = 4, GX_I64 = 5, GX_U8 = 6 };
#define GX_DTYPE_BIT(dtype) (1u << (dtype))

typedef uint8_t gx_direction; /* towards, away from the domain's servers */
enum { GX_UP = 0, GX_DOWN = 1 };
typedef uint8_t gx_tier;
enum { GX_LAN = 0, GX_WAN = 1 };
/* Of the values. A delta is what parameters are less what their receivers have of them: nothing that encoding leaves
 * out may be kept, since it is in the next round's delta. The host keeps what they have. */
typedef uint8_t gx_content;
enum { GX_GRADIENT = 0, GX_PARAMETER = 1, GX_DELTA = 2 };

typedef struct gx_error {
  char message[512]; /* zero-terminated; the caller's */
} gx_error;

typedef struct gx_bytes {
  const uint8_t* data; /* at any address */
  uint64_t size;
} gx_bytes;

/* To be written to: at most capacity bytes; size says how many were written. */
typedef struct gx_buffer {
  uint8_t* data;
  uint64_t size, capacity;
} gx_buffer;

typedef struct gx_param {
  const char* name;
  char kind; /* 'i', 'f' or 's': which of the next three holds */
  int64_t i;
  double f;
  const char* s;
} gx_param;

typedef struct gx_params {
  const gx_param* items;
  size_t count;
} gx_params;

/* Where an instance lives. 0 where the host doesn't know. */
typedef struct gx_site {
  uint32_t struct_size;
  gx_tier tier;
  uint8_t is_server;
  uint32_t rank, num_members, num_servers;
  gx_content answer; /* what the servers answer with: sums of gradients, or parameters where they have an optimizer */
} gx_site;

/* One contiguous part of one tensor in one round. */
typedef struct gx_slice {
  uint32_t struct_size;
  gx_dtype dtype;      /* of the key, and its width on the wire without a codec */
  gx_dtype data_dtype; /* of data: what the key is summed in; float32 for halves, else dtype */
  gx_direction direction;
  gx_tier tier;
  gx_content content;
  uint64_t key;
  uint32_t part, num_parts, round;
  int32_t priority;        /* as the caller asked; larger goes first */
  uint64_t offset, length; /* in elements, within the flattened tensor */
  uint64_t tensor_length;
  void* data; /* length elements, aligned to their type; null where a call needs no values */
} gx_slice;

/* Vectorised loops for the processor at hand. Halves may lie at any address; other arrays are aligned to their type.
 * Conversions to halves round to nearest, ties to even; NaN stays NaN. */
enum {
  GX_SATURATE = 0, /* what is too large, infinity included, becomes the largest finite value */
  GX_TO_INFINITY = 1
};
typedef struct gx_kernels {
  uint32_t struct_size;
  /* Return how many values were too large for the type (GX_TO_INFINITY: of the finite ones). */
  uint64_t (*f32_to_f16)(const float* values, void* halves, uint64_t n, int overflow);
  uint64_t (*f32_to_bf16)(const float* values, void* halves, uint64_t n, int overflow);
  void (*f16_to_f32)(const void* halves, float* values, uint64_t n);
  void (*bf16_to_f32)(const void* halves, float* values, uint64_t n);
  void (*add_f16)(float* sum, const void* halves, uint64_t n);
  void (*add_bf16)(float* sum, const void* halves, uint64_t n);
  void (*add_f32)(float* sum, const void* values, uint64_t n); /* values at any address */
  double (*abs_sum_f32)(const void* values, uint64_t n);       /* the same */
} gx_kernels;

/* What the host offers. Valid until the last instance of the plugin is released; callable from any of its threads. */
typedef struct gx_host {
  uint32_t struct_size;
  uint32_t abi_version;
  const gx_kernels* kernels;
  void (*log)(const struct gx_host*, int level, const char* message); /* levels of Python's logging: 20 info, 30 ... */
  void (*metric)(const struct gx_host*, const char* name, double value); /* added up by name */
  uint64_t (*now_ns)(const struct gx_host*);                             /* the node's clock: virtual in tests */
  /* Of overlays; null for others. */
  void (*wake)(const struct gx_host*, uint64_t key, uint32_t part); /* ask again about a part that is held */
  void (*send_control)(const struct gx_host*, uint32_t node, gx_bytes words);
  void* private_data;
} gx_host;

/* ---- codec: part <-> bytes ---- */

enum { GX_SCOPE_PART = 0, GX_SCOPE_SHARD = 1, GX_SCOPE_TENSOR = 2 };
enum {
  GX_KEEPS_RESIDUAL = 1,    /* keeps what encoding leaves out in its slot: has give_back */
  GX_CAN_MERGE = 2,         /* adds encoded parts: has merge */
  GX_CARRIES_GRADIENTS = 4, /* what it may be chosen for */
  GX_CARRIES_PARAMETERS = 8,
  GX_CARRIES_DELTAS = 16
};

typedef struct gx_codec {
  uint32_t struct_size;
  uint32_t wire_id; /* GX_FOURCC of the byte format: new bytes, new id */
  uint32_t scope, caps;
  uint32_t dtypes; /* GX_DTYPE_BIT of each that it takes */

  /* A slot is what is remembered between rounds for one (peer or shared, key, direction). Both may be null: no memory.
   */
  gx_status (*open_slot)(struct gx_codec*, const gx_slice* whole, void** slot, gx_error*);
  void (*close_slot)(struct gx_codec*, void* slot);
  /* Once a round, before the parts are encoded, with all elements that the scope names. */
  gx_status (*prepare)(struct gx_codec*, void* slot, const gx_slice* whole, gx_error*);
  /* The most bytes that a part of this length can take. */
  uint64_t (*max_encoded_size)(struct gx_codec*, const gx_slice*);
  gx_status (*encode)(struct gx_codec*, void* slot, const gx_slice* in, gx_buffer* out, gx_error*);
  /* accumulate != 0: data += decoded, so that a sparse part costs what it carries, not what it covers. `in` comes from
   * the network: refuse what can't be right with GX_ECORRUPT, and write to data only when all of it is. */
  gx_status (*decode)(struct gx_codec*, gx_bytes in, int accumulate, const gx_slice* to, gx_error*);

  /* The rest may be null. */
  /* One that carries the sum, within the format's own rounding; sparse values exactly. GX_EUNSUPPORTED: the sum doesn't
   * fit into the format, and these travel on one by one. */
  gx_status (*merge)(struct gx_codec*, const gx_slice*, const gx_bytes* in, size_t count, gx_buffer* out, gx_error*);
  /* How much an encoded part weighs, as the sum of its decoded magnitudes; parts are ranked by it. Null: the host
   * decodes it and adds. */
  gx_status (*score)(struct gx_codec*, const gx_slice*, gx_bytes in, double* contribution, gx_error*);
  /* What was encoded and never applied goes back into the residual. */
  gx_status (*give_back)(struct gx_codec*, void* slot, const gx_slice*, gx_bytes lost, gx_error*);
  /* Called with what may be too little room: then GX_ENOSPC and out->size as needed. */
  gx_status (*save_slot)(struct gx_codec*, void* slot, gx_buffer* out, gx_error*);
  gx_status (*load_slot)(struct gx_codec*, void* slot, gx_bytes in, gx_error*);
  void (*release)(struct gx_codec*); /* after all its slots are closed */
  void* private_data;
} gx_codec;

/* ---- transport: which class of service a part gets ---- */

typedef struct gx_class {
  uint8_t channel;   /* 0: reliable; lossy ones are of falling priority */
  uint8_t droppable; /* a round may close without it; it then goes back to who sent it */
  uint8_t coarse;    /* it travels in coarse_codec, where that is smaller; what that loses waits for the next round */
  uint8_t withheld;  /* of droppable ones: it is not sent at all */
} gx_class;

enum {
  GX_MAY_DROP = 1,        /* some parts may be droppable: senders mark the ends of their rounds */
  GX_WANTS_DATAGRAMS = 2, /* lossy channels are datagrams, each marked with its priority */
  GX_WANTS_STREAMS = 4 /* they are streams of their own, marked too; with neither they are a part of the one stream */
};

/* An instance classes the parts that a node sends up in one domain. When a round with holes closes, the host decides:
 * when all that is reliable is in, and each sender's end mark and deadline_us after it have passed. */
typedef struct gx_transport {
  uint32_t struct_size;
  uint32_t caps;
  uint32_t num_channels; /* lossy ones */
  uint32_t deadline_us;  /* for droppable parts to arrive after their sender's end mark */
  uint32_t wait_us;      /* for droppable parts to leave, once nothing reliable is before them; 0: for ever */
  uint32_t reserved;
  const char* coarse_codec; /* the name of a codec of the same library; null: none */
  /* All parts of a tensor that go to one server in one round, with the sums of their magnitudes. `out` is zeroed. */
  gx_status (*classify)(struct gx_transport*, const gx_slice* parts, const double* scores, size_t count, gx_class* out,
                        gx_error*);
  void (*on_metric)(struct gx_transport*, const char* name, double value); /* reported by workers: their mean "loss" */
  void (*release)(struct gx_transport*);
  void* private_data;
} gx_transport;

/* ---- scheduler: how tensors are cut, what goes first, how much may be in flight ---- */

typedef struct gx_link {
  uint32_t struct_size;
  uint32_t member;
  double bytes_per_s, rtt_s;
  uint64_t in_flight_bytes;
} gx_link;

typedef struct gx_scheduler {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t (*part_length)(struct gx_scheduler*, const gx_slice* whole); /* in elements; 0: not cut */
  int64_t (*rank)(struct gx_scheduler*, const gx_slice*);               /* larger first; equal ranks leave in order */
  uint64_t (*credit)(struct gx_scheduler*, const gx_link*);             /* bytes that may be in flight; 0: no limit */
  void (*release)(struct gx_scheduler*);
  void* private_data;
} gx_scheduler;

/* ---- overlay: who is the next hop, and where values merge ---- */

/* Nodes of a domain: members by rank, servers by rank with this bit set. */
#define GX_SERVER 0x80000000u

/* Where an overlay's instance lives: one for each node and domain. */
typedef struct gx_overlay_site {
  uint32_t struct_size;
  uint32_t self; /* a node */
  uint32_t num_members, num_servers;
  gx_tier tier;
  const uint8_t* contributes; /* of each member: is it ever expected in a round? */
  const uint8_t* reachable;   /* of each member: may others send to it? */
} gx_overlay_site;

/* What is merged at a node and not handed on. */
typedef struct gx_held {
  uint32_t struct_size;
  uint32_t root;                /* the part's server */
  const uint32_t* contributors; /* members (num_members: the central party), ascending */
  size_t num_contributors;
  uint64_t bytes; /* encoded */
  uint64_t since_ns;
} gx_held;

enum { GX_HOP_SEND = 0, GX_HOP_WAIT = 1 };
typedef struct gx_hop {
  uint32_t kind;
  uint32_t node;     /* GX_HOP_SEND */
  uint64_t until_ns; /* GX_HOP_WAIT: asked again then, when more is merged, or after wake() */
} gx_hop;

/* A member that gets a value, followed by the `below` ones that it passes it on to: trees in preorder. */
typedef struct gx_step {
  uint32_t member, below;
} gx_step;

/* The host merges, counts each contributor once, and goes straight to the root where an answer is late: what an
 * overlay decides can make a round slow, never wrong. */
typedef struct gx_overlay {
  uint32_t struct_size;
  uint32_t reserved;
  gx_status (*next_hop)(struct gx_overlay*, const gx_slice*, const gx_held*, gx_hop* out, gx_error*);
  /* On the part's server: each of `owed` (ascending; num_members: the central party, which must come first and alone)
   * exactly once in out[0 .. count-1]. */
  gx_status (*route)(struct gx_overlay*, const gx_slice*, uint64_t bytes, const uint32_t* owed, size_t count,
                     gx_step* out, gx_error*);
  /* Without an answer for so long a contributor goes straight to the root. */
  uint64_t (*bypass_ns)(struct gx_overlay*);
  /* The rest may be null. */
  void (*on_control)(struct gx_overlay*, uint32_t from, gx_bytes words); /* from the network: trust nothing */
  void (*on_delivered)(struct gx_overlay*, uint32_t to, uint64_t bytes, uint64_t sent_ns);
  void (*on_received)(struct gx_overlay*, uint32_t from, uint64_t bytes);
  void (*on_answer)(struct gx_overlay*, const gx_slice*); /* a round that this node contributed to is over for it */
  /* What this node contributed went straight to the root: an answer was late, or it can't be merged. */
  void (*on_bypass)(struct gx_overlay*, const gx_slice*, uint32_t root);
  void (*on_missed)(struct gx_overlay*, const gx_slice*, uint32_t member); /* a value that was routed didn't arrive */
  void (*on_left)(struct gx_overlay*, uint32_t member);
  void (*release)(struct gx_overlay*);
  void* private_data;
} gx_overlay;

/* ---- the one function that a plugin exports ---- */

/* Makes one instance. `out` is zeroed, and struct_size says how much of it there is. `user` is what was registered. */
typedef gx_status (*gx_make_codec)(void* user, const gx_host*, const gx_site*, gx_params, gx_codec* out, gx_error*);
typedef gx_status (*gx_make_transport)(void* user, const gx_host*, const gx_site*, gx_params, gx_transport* out,
                                       gx_error*);
typedef gx_status (*gx_make_scheduler)(void* user, const gx_host*, const gx_site*, gx_params, gx_scheduler* out,
                                       gx_error*);
typedef gx_status (*gx_make_overlay)(void* user, const gx_host*, const gx_overlay_site*, gx_params, gx_overlay* out,
                                     gx_error*);

typedef struct gx_registrar {
  uint32_t struct_size;
  uint32_t reserved;
  gx_status (*add_codec)(struct gx_registrar*, const char* name, gx_make_codec make, void* user, gx_error*);
  gx_status (*add_transport)(struct gx_registrar*, const char* name, gx_make_transport make, void* user, gx_error*);
  gx_status (*add_scheduler)(struct gx_registrar*, const char* name, gx_make_scheduler make, void* user, gx_error*);
  gx_status (*add_overlay)(struct gx_registrar*, const char* name, gx_make_overlay make, void* user, gx_error*);
  void* private_data;
} gx_registrar;

GX_EXPORT gx_status geomx_plugin_v1(const gx_host* host, gx_registrar* registrar, gx_error* err);

#ifdef __cplusplus
}
#endif
#endif
