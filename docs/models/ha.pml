/* SPDX-License-Identifier: Apache-2.0
 * ha.pml - a model of the masters' election and replication, for the model checker Spin.
 *
 * Checked: an acknowledged object is not lost and never reported as absent while it lives, no reader finds an object that
 * was removed before it asked, and committed memory is not overwritten, whatever master is slow, killed or restarted,
 * whenever the lease ends, and whichever standby believes that the leader's process has ended.  README has the command.
 *
 * The parts, as docs/MASTERS.md has them:
 *	store	etcd or Redis: the leader, its term, and the masters in sync ("insync"); all changes are transactions
 *	lease	the leader's own clock ends it before the store does; between a check of the lease and the message
 *		that depends on it any time may pass
 *	journal	a record is answered for when all masters in sync have it.  A master that does not confirm is removed
 *		from the set in the store first.  Only a member may become leader
 *	notice	a standby in sync may take the lead during the lease, because the leader seems to have ended.  It may be
 *		wrong.  It confirms nothing from then on; one transaction replaces the leader, if this is still the same
 *		and the standby a member
 *	promise	each confirmation of a standby is a promise not to serve for a time, which ends on the leader's clock
 *		first.  The leader answers reads only while it has the promises of all members
 *	fence	an owner of memory refuses writers of older terms once a leader has attached it
 * One key, one range of memory; each value is put by one writer. */

#ifndef MASTERS
#define MASTERS 3
#endif
#ifndef VALUES
#define VALUES 2
#endif
#ifndef TERMS
#define TERMS 3
#endif
/* One of the rules is left out, to see that the checker notices; 0: none. */
#ifndef BROKEN
#define BROKEN 0
#endif
#define NO_FENCE 1
#define NO_LEASE_IN_READS 2
#define NO_REMOVAL_IN_STORE 3
#define NO_WAIT 4
#define NO_PROMISE_IN_READS 5
#define NO_PROMISE_WAIT 6
#define NO_REFUSAL 7
#define NO_MEMBER_CHECK 8
#ifndef KILLS
#define KILLS 1
#endif
#ifndef NOTICES
#define NOTICES 1
#endif
#define NONE 255
#define BIT(i) (1 << (i))

/* ---- the store ---- */
byte leader = NONE, term = 0, insync = BIT(MASTERS) - 1;

/* ---- the masters ---- */
/* What a journal says: the value of the key, and the value that has the memory; it survives its master. */
byte value[MASTERS], range[MASTERS];
bool leads[MASTERS];		/* has the lease by its own clock */
byte my_term[MASTERS], seen_term[MASTERS];
byte life[MASTERS];		/* counts kills: a killed master's step is not continued */
bool serves[MASTERS];		/* no promise to the last leader is left */
byte need[MASTERS];		/* the members whose promise the leader needs */
byte relies[MASTERS];		/* those whose promise lasts, by the leader's clock */
bool bound[MASTERS];		/* the standby's promise lasts, by its own clock */
bool fed[MASTERS];		/* the standby has confirmed in this life */
bool noticed[MASTERS];		/* it confirms nothing; its promises are counted */
byte notices;

/* ---- the owner of the memory ---- */
byte memory = 0, fence = 0;

/* ---- what clients know ---- */
byte acknowledged = 0;		/* the last value that was put and not dropped */
bool ended[VALUES + 1];		/* the value was dropped, or replaced */
byte gone = 0;			/* values whose removal was answered for, or whose memory may have been granted again */

/* ---- puts: one for each value; the term of the grant ---- */
byte next = 1;
bool written[VALUES + 1];
byte grant[VALUES + 1];

/* By its own clock. */
#define ANSWERS(x) (x < MASTERS && leads[x % MASTERS] && serves[x % MASTERS] && !(need[x % MASTERS] & ~relies[x % MASTERS]))
/* Will @x confirm to a leader of term @t? */
#define CONFIRMS(x, t) (seen_term[x] <= t && !leads[x] && (!noticed[x] || BROKEN == NO_REFUSAL))

inline promise(x, to) {
#if NOTICES
	relies[to] = relies[to] | BIT(x);
	bound[x] = (noticed[x] -> bound[x] : true);
	fed[x] = true
#else
	skip
#endif
}

/* Wait until every master in sync has the journal of @m.  A member that does not answer is removed from the set, which
 * the store does for the leader only. */
inline replicate(m, t) {
	j = (BROKEN == NO_WAIT -> MASTERS : 0);
	do
	:: j < MASTERS && (j == m || !(insync & BIT(j))) -> j++
	:: j < MASTERS && j != m && (insync & BIT(j)) ->
		if
		/* It refuses a leader of an older term. */
		:: atomic { life[m] == born && CONFIRMS(j, t) ->
			seen_term[j] = t; value[j] = value[m]; range[j] = range[m]; promise(j, m) }; j++
		:: atomic { life[m] == born && (BROKEN == NO_REMOVAL_IN_STORE || leader == m && term == t) ->
			insync = (BROKEN == NO_REMOVAL_IN_STORE -> insync : insync & ~BIT(j));
			need[m] = need[m] & ~BIT(j) }; j++
		:: life[m] != born || term != t -> goto lost
		fi
	:: j == MASTERS -> j = 0; break
	od
}

inline join(x) {
	atomic {
		m != x && !(insync & BIT(x)) && leader == m && term == t && leads[m] && life[m] == born &&
		CONFIRMS(x, t) ->
		seen_term[x] = t;
		value[x] = value[m];
		range[x] = range[m];
		insync = insync | BIT(x);
		need[m] = (NOTICES -> need[m] | BIT(x) : 0);
		promise(x, m)
	}
}

/* An empty part shows that the leader lives. */
inline beat(x) {
	atomic { (need[m] & ~relies[m] & BIT(x)) && life[m] == born && CONFIRMS(x, t) -> seen_term[x] = t; promise(x, m) }
}

/* One transaction.  Nothing that was acknowledged is lost. */
inline become_leader(m) {
	born = life[m];
	term++;
	leader = m;
	t = term;
	my_term[m] = t;
	seen_term[m] = t;
	leads[m] = true;
#if NOTICES
	need[m] = insync & ~BIT(m);
	relies[m] = 0;
#endif
	assert(!acknowledged || value[m] == acknowledged)
}

/* ---- one master ---- */
proctype master(byte m) {
	byte j, t, v, born;

standby:
	atomic { leads[m] = false; serves[m] = false; noticed[m] = false; born = life[m]; t = 0; v = 0; j = 0 }
	if
	:: atomic {
			leader == NONE && (insync & BIT(m)) && term < TERMS ->
			become_leader(m);
			serves[m] = true
		}
	/* The leader seems to have ended. */
	:: atomic {
			notices < NOTICES && fed[m] && leader != NONE && leader != m && (insync & BIT(m)) &&
			seen_term[m] == term && term < TERMS ->
			born = life[m];
			notices++;
			noticed[m] = true;
			j = leader;
			t = term
		};
		if
		:: atomic {
				life[m] == born && leader == j && term == t &&
				((insync & BIT(m)) || BROKEN == NO_MEMBER_CHECK) ->
				j = 0;
				become_leader(m)
			}
		:: goto standby
		fi;
		/* The last leader's reads end. */
		if
		:: atomic { life[m] == born && leads[m] && (!bound[m] || BROKEN == NO_PROMISE_WAIT) -> serves[m] = true }
		:: atomic { life[m] != born || !leads[m] -> goto standby }
		fi
	fi;
	/* The owner attaches, and fences writers of older terms.  Memory of an unfinished put is free after that. */
	atomic {
		if
		:: leads[m] && life[m] == born && my_term[m] == t ->
			fence = (fence > t -> fence : t);
			if
			:: range[m] != value[m] -> range[m] = 0; value[m] = 0
			:: else
			fi
		:: else -> goto standby
		fi
	}
	replicate(m, t);
	do
	:: life[m] != born || !leads[m] -> goto standby
	/* A standby gets the whole journal, and is in sync from then on. */
	:: join(0)
	:: join(1)
#if MASTERS > 2
	:: join(2)
#endif
	:: beat(0)
	:: beat(1)
#if MASTERS > 2
	:: beat(2)
#endif
	/* A put: only into free memory. */
	:: atomic {
			range[m] == 0 && leads[m] && life[m] == born && next <= VALUES ->
			v = next;
			next++;
			range[m] = v
		};
		replicate(m, t);
		/* The answer leaves, perhaps late. */
		grant[v] = t;
		/* The writer says that it has written; its session ends with this master. */
		if
		:: atomic { written[v] && leads[m] && life[m] == born -> value[m] = v };
			replicate(m, t);
			atomic {
				acknowledged = (ended[v] -> acknowledged : v);
				v = 0
			}
		:: atomic { life[m] != born || !leads[m] -> goto standby }
		fi
	/* Eviction.  The memory is granted again only after this record, so not before it is replicated. */
	:: atomic { value[m] && leads[m] && life[m] == born ->
			v = value[m];
			ended[v] = true;
			acknowledged = (acknowledged == v -> 0 : acknowledged);
			value[m] = 0;
			range[m] = 0
		};
		replicate(m, t);
		atomic { gone = gone | BIT(v); v = 0 }
	od;
lost:
	goto standby
}

/* Writes at any time after its grant, however late. */
proctype writer(byte v) {
	grant[v] > 0;
	atomic {
		if
		:: grant[v] >= fence || BROKEN == NO_FENCE -> memory = v; written[v] = true
		:: else		/* refused */
		fi
	}
}

inline read(x) {
	atomic { my_term[x] -> before = acknowledged; dead = gone };
	atomic { t = my_term[x]; v = value[x] };
	atomic {
		if
		:: leads[x] && serves[x] && my_term[x] == t && (ANSWERS(x) || BROKEN == NO_PROMISE_IN_READS) ||
		   BROKEN == NO_LEASE_IN_READS ->
			assert(!v || !(dead & BIT(v)));
			/* The value lived all the time. */
			assert(!before || before != acknowledged || v == before);
			assert(!v || v != acknowledged || memory == v)
		:: else		/* no answer */
		fi;
		t = 0; v = 0; before = 0; dead = 0
	}
}

/* A get: the master looks, and checks its lease after the request came; the answer leaves, however late. */
proctype reader() {
	byte t, v, before, dead;

	do
	:: read(0)
	:: read(1)
#if MASTERS > 2
	:: read(2)
#endif
	od
}

#if MASTERS > 2
#define RELIES(x) ((relies[0] | relies[1] | relies[2]) & BIT(x))
#else
#define RELIES(x) ((relies[0] | relies[1]) & BIT(x))
#endif

/* The lease ends: by the leader's clock, then by the store's; so do promises. */
proctype clock() {
	do
	:: atomic { relies[0] -> relies[0] = 0 }
	:: atomic { relies[1] -> relies[1] = 0 }
	:: atomic { bound[0] && !RELIES(0) -> bound[0] = false }
	:: atomic { bound[1] && !RELIES(1) -> bound[1] = false }
	/* That of a leader which was replaced. */
	:: atomic { leads[0] && leader != 0 -> leads[0] = false }
	:: atomic { leads[1] && leader != 1 -> leads[1] = false }
#if MASTERS > 2
	:: atomic { relies[2] -> relies[2] = 0 }
	:: atomic { bound[2] && !RELIES(2) -> bound[2] = false }
	:: atomic { leads[2] && leader != 2 -> leads[2] = false }
#endif
	:: atomic { leader != NONE && term < TERMS -> leads[leader] = false }
	/* A lease is longer than a promise: a leader that was replaced answers nothing any more. */
	:: atomic { leader != NONE && !leads[leader] && !ANSWERS(0) && !ANSWERS(1) && !ANSWERS(2) -> leader = NONE }
	:: atomic { leader == NONE && term == TERMS -> break }
	od
}

inline kill(x) {
	life[x]++;
	leads[x] = false;
	serves[x] = false;
	noticed[x] = false;
	fed[x] = false;
	bound[x] = false
}

/* kill -9 of any master, KILLS times; it starts again at once, as a standby. */
proctype killer() {
	byte n;

	do
	:: atomic { n < KILLS -> kill(0); n++ }
	:: atomic { n < KILLS -> kill(1); n++ }
	:: break
	od
}

init {
	byte k;

	atomic {
		for (k : 0 .. MASTERS - 1) { run master(k) }
		for (k : 1 .. VALUES) { run writer(k) }
		run reader();
		run clock();
		run killer()
	}
}
