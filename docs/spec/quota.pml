/*
 * The right to write, and the units that go with it: fence, seal, numbered
 * adjustments, reclaim and handover, as small as they can be and still go wrong.
 *
 * Two cells, three units, two users in one bucket. Cell A is home at first. A
 * step in `atomic` is one transaction: of etcd (the book) or of a shard. Between
 * two steps everybody else may do anything, and a process may stop for ever at
 * any point, which is what a crash or a frozen process is.
 *
 * `make model` checks it, and checks that each of three wrong designs breaks it:
 *
 *   -DLEASE_IS_PROOF         a lapsed lease frees the units it was last heard of
 *   -DRECLAIM_BY_DIFFERENCE  reclaim takes what the book has and the shard did not sell
 *   -DOWNER_IN_MIRROR        only the mirror knows whose bucket it is
 *
 * Units are moved one at a time: an adjustment of n units is n times the same.
 */

#define LIMIT 3
#define A 0
#define B 1
#define CELLS 2
#define USERS 2
#define ADJUSTMENTS 2

mtype = { NONE, GRANT, RETURN };                     /* kinds                  */
mtype = { PROPOSED, BOOKED, DONE, VOIDED };          /* the journal's states   */
mtype = { UNDECIDED, APPLIED, REFUSED, VOID };       /* what a shard decided   */
mtype = { ACTIVE, FENCING, FENCED };                 /* a cell, a fence row    */
mtype = { OPEN, CLOSED };                            /* a bucket in a shard    */

/* ---- the book and its journal: one key of etcd, one transaction a step ---- */

byte reserve = 1;
byte alloc[CELLS];
byte bookVersion[CELLS] = 1;
byte bookNumber[CELLS];
mtype cell[CELLS] = ACTIVE;

typedef Adjustment { mtype kind = NONE; byte at; byte number; byte version; mtype state; bool givenUp; mtype outcome = UNDECIDED };
Adjustment journal[ADJUSTMENTS];
byte written;

bool proved;      /* the fence's proof stands in etcd */
byte sealed;      /* units that it names              */
bool reclaimed;

/* ---- the shards ---- */

byte granted[CELLS];
byte available[CELLS];
byte sold[CELLS];
byte fenceVersion[CELLS] = 1;
mtype fenceRow[CELLS] = ACTIVE;
byte lastNumber[CELLS];
mtype bucket[CELLS] = CLOSED;
bool buyer[CELLS * USERS];   /* an order, or a mark that was carried in */
byte writers[CELLS];         /* holders of the shared advisory lock     */
bool locked[CELLS];          /* the exclusive one                       */

/* ---- what cells believe, and what users have ---- */

bool mirrorOwns[CELLS];      /* the mirror admits users of the bucket */
byte orders[USERS];
bool exported[USERS];

/* ---- invariants ---- */

#define I1 (reserve + alloc[A] + alloc[B] == LIMIT)
#define I2 (granted[A] == available[A] + sold[A] && granted[B] == available[B] + sold[B] \
            && granted[A] <= alloc[A] && granted[B] <= alloc[B])
#define I3 (sold[A] + sold[B] <= LIMIT)
#define I4 (orders[0] <= 1 && orders[1] <= 1)

inline check() { assert(I1); assert(I2); assert(I3); assert(I4) }

/* ---- the leader: each step is one transaction on the book ---- */

inline propose(k, c, s) {
  bookNumber[c]++;
  journal[written].kind = k; journal[written].at = c;
  journal[written].number = bookNumber[c]; journal[written].version = bookVersion[c];
  journal[written].state = s;
  written++
}

inline giveBack(giver) { alloc[giver]--; reserve++ }

/* settle books a shard's answer: the table of controlplane/core/settle.go. */
inline settle(n) {
  if
  :: journal[n].kind == GRANT && journal[n].outcome == APPLIED -> journal[n].state = DONE
  :: journal[n].kind == GRANT && journal[n].outcome != APPLIED -> journal[n].state = VOIDED; giveBack(journal[n].at)
  :: journal[n].kind == RETURN && journal[n].outcome == APPLIED -> journal[n].state = DONE; giveBack(journal[n].at)
  :: journal[n].kind == RETURN && journal[n].outcome != APPLIED -> journal[n].state = VOIDED
  fi
}

#define isOpen(n) (journal[n].state == PROPOSED || journal[n].state == BOOKED)

/* reclaim moves named things only: each adjustment of the fenced version that
 * is open, by what the proof says of its id, and the sealed units. */
inline reclaim(i) {
#ifdef RECLAIM_BY_DIFFERENCE
  reserve = reserve + (alloc[A] - sold[A]);
  alloc[A] = sold[A];
#else
  i = 0;
  do
  :: i < written ->
     if
     :: journal[i].at == A && isOpen(i) -> settle(i)   /* undecided counts as void */
     :: else
     fi;
     i++
  :: else -> break
  od;
  alloc[A] = alloc[A] - sealed; reserve = reserve + sealed; sealed = 0;
  i = 0;
  assert(alloc[A] == sold[A]);
#endif
  reclaimed = true
}

proctype Leader() {
  byte i, c;
  do
  :: atomic { written < ADJUSTMENTS && reserve > 0 && cell[A] == ACTIVE ->
       reserve--; alloc[A]++; propose(GRANT, A, BOOKED); check() }
  :: atomic { written < ADJUSTMENTS && reserve > 0 && cell[B] == ACTIVE ->
       reserve--; alloc[B]++; propose(GRANT, B, BOOKED); check() }
  :: atomic { written < ADJUSTMENTS && alloc[A] > 0 && cell[A] == ACTIVE ->
       propose(RETURN, A, PROPOSED); check() }
  :: atomic { written > 0 && isOpen(0) && !journal[0].givenUp -> journal[0].givenUp = true }
  :: atomic { written > 0 && isOpen(0) && journal[0].outcome != UNDECIDED -> settle(0); check() }
  :: atomic { written > 1 && isOpen(1) && journal[1].outcome != UNDECIDED -> settle(1); check() }
  :: atomic { cell[A] == ACTIVE -> cell[A] = FENCING }
  :: atomic { proved && !reclaimed -> reclaim(i); check() }
#ifdef LEASE_IS_PROOF
  :: atomic { !reclaimed && alloc[A] > 0 -> i = available[A]; alloc[A] = alloc[A] - i; reserve = reserve + i; i = 0; reclaimed = true; check() }
#endif
  :: break                          /* the leader dies; what stands is safe */
  od
}

/* ---- the fencer: exclusive lock, then the row, then, later, the seal ---- */

proctype Fencer() {
  cell[A] == FENCING;
  atomic { writers[A] == 0 && !locked[A] -> locked[A] = true };
  atomic { fenceVersion[A]++; fenceRow[A] = FENCED };
  atomic { sealed = available[A]; granted[A] = granted[A] - available[A]; available[A] = 0; check() };
  locked[A] = false;
  atomic { cell[A] = FENCED; proved = true }
}

/* ---- a shard's adjustments: exactly the next number of its own version ---- */

#define isNext(c, n) (journal[n].at == c && journal[n].outcome == UNDECIDED && \
  journal[n].number == lastNumber[c] + 1 && journal[n].version == fenceVersion[c] && fenceRow[c] == ACTIVE)

inline decide(c, n) {
  lastNumber[c]++;
  if
  :: journal[n].givenUp -> journal[n].outcome = VOID
  :: !journal[n].givenUp && journal[n].kind == GRANT -> granted[c]++; available[c]++; journal[n].outcome = APPLIED
  :: !journal[n].givenUp && journal[n].kind == RETURN && available[c] > 0 -> granted[c]--; available[c]--; journal[n].outcome = APPLIED
  :: !journal[n].givenUp && journal[n].kind == RETURN && available[c] == 0 -> journal[n].outcome = REFUSED
  fi
}

/* A directive may come twice, late or out of order: it is tried whenever it
 * stands in the journal. Nothing of it happens between its lock and its commit,
 * so the whole transaction is one step that the exclusive lock keeps out. */
proctype Adjuster(byte c) {
  byte n;
  do
  :: atomic {
       !locked[c] -> n = 0;
       do
       :: n < written && !isNext(c, n) -> n++
       :: else -> break
       od;
       if
       :: n < written -> decide(c, n); check()
       :: else
       fi;
       n = 0
     }
  :: break
  od
}

/* ---- orders: admitted by the mirror, decided in the shard, maybe much later ---- */

#ifdef OWNER_IN_MIRROR
#define owns(c) true
#else
#define owns(c) (bucket[c] == OPEN)
#endif

proctype Order(byte c; byte user) {
  byte mine;
  mirrorOwns[c];                                  /* admitted                      */
  mine = fenceVersion[c];                         /* the process's own version     */
  atomic { !locked[c] -> writers[c]++ };          /* shared lock, own statement    */
  atomic {                                        /* then the row, then the rest   */
    if
    :: mine == fenceVersion[c] && fenceRow[c] == ACTIVE && owns(c) && !buyer[c * USERS + user] && available[c] > 0 ->
         assert(fenceRow[c] == ACTIVE && mine == fenceVersion[c]);   /* I8 */
         available[c]--; sold[c]++; buyer[c * USERS + user] = true; orders[user]++;
         check()
    :: else                                       /* fenced, moved, bought, sold out */
    fi;
    writers[c]--
  }
}

/* ---- handover of the bucket from A to B, live or fenced ---- */

proctype Handover() {
  byte u;
  atomic { writers[A] == 0 && !locked[A] -> locked[A] = true };   /* instead of the shared one */
  atomic { bucket[A] = CLOSED; locked[A] = false };
  atomic { exported[0] = buyer[A * USERS + 0]; exported[1] = buyer[A * USERS + 1] };
  atomic { u = 0; do :: u < USERS -> buyer[B * USERS + u] = buyer[B * USERS + u] || exported[u]; u++ :: else -> break od; u = 0 };
  bucket[B] = OPEN;
  mirrorOwns[B] = true;                                           /* mirrors learn in any order */
  mirrorOwns[A] = false
}

init {
  atomic {
    alloc[A] = 2; granted[A] = 2; available[A] = 2;
    bucket[A] = OPEN; mirrorOwns[A] = true;
    check();
    run Leader(); run Fencer(); run Handover(); run Adjuster(A); run Adjuster(B);
    run Order(A, 0); run Order(A, 1); run Order(B, 0)
  }
}
