/* SPDX-License-Identifier: Apache-2.0
 * ha.pml - a model of the masters' election and replication, for the model checker Spin.
 *
 * Checked: an acknowledged object is not lost and never reported as absent while it lives, and committed memory is not
 * overwritten, whatever master is slow, killed or restarted, and whenever the lease ends.  README has the command.
 *
 * The parts, as docs/ARCHITECTURE.md "High availability" has them:
 *	store	etcd or Redis: the leader, its term, and the masters in sync ("insync"); all changes are transactions
 *	lease	the leader's own clock ends it before the store does; between a check of the lease and the message
 *		that depends on it any time may pass
 *	journal	a record is answered for when all masters in sync have it.  A master that does not confirm is removed
 *		from the set in the store first.  Only a member may become leader
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
#ifndef KILLS
#define KILLS 1
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

/* ---- the owner of the memory ---- */
byte memory = 0, fence = 0;

/* ---- what clients know ---- */
byte acknowledged = 0;		/* the last value that was put and not dropped */
bool ended[VALUES + 1];		/* the value was dropped, or replaced */

/* ---- puts: one for each value; the term of the grant ---- */
byte next = 1;
bool written[VALUES + 1];
byte grant[VALUES + 1];

/* Wait until every master in sync has the journal of @m.  A member that does not answer is removed from the set, which
 * the store does for the leader only. */
inline replicate(m, t) {
	j = (BROKEN == NO_WAIT -> MASTERS : 0);
	do
	:: j < MASTERS && (j == m || !(insync & BIT(j))) -> j++
	:: j < MASTERS && j != m && (insync & BIT(j)) ->
		if
		/* It refuses a leader of an older term. */
		:: atomic { life[m] == born && seen_term[j] <= t && !leads[j] ->
			seen_term[j] = t; value[j] = value[m]; range[j] = range[m] }; j++
		:: atomic { life[m] == born && (BROKEN == NO_REMOVAL_IN_STORE || leader == m && term == t) ->
			insync = (BROKEN == NO_REMOVAL_IN_STORE -> insync : insync & ~BIT(j)) }; j++
		:: life[m] != born || term != t -> goto lost
		fi
	:: j == MASTERS -> j = 0; break
	od
}

inline join(x) {
	atomic {
		m != x && !(insync & BIT(x)) && leader == m && term == t && leads[m] && life[m] == born &&
		seen_term[x] <= t && !leads[x] ->
		seen_term[x] = t;
		value[x] = value[m];
		range[x] = range[m];
		insync = insync | BIT(x)
	}
}

/* ---- one master ---- */
proctype master(byte m) {
	byte j, t, v, born;

standby:
	atomic { leads[m] = false; born = life[m]; t = 0; v = 0; j = 0 }
	/* Become the leader: one transaction. */
	atomic {
		leader == NONE && (insync & BIT(m)) && term < TERMS ->
		born = life[m];
		term++;
		leader = m;
		t = term;
		my_term[m] = t;
		seen_term[m] = t;
		leads[m] = true;
		/* Nothing that was acknowledged is lost. */
		assert(!acknowledged || value[m] == acknowledged)
	}
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
			ended[value[m]] = true;
			acknowledged = (acknowledged == value[m] -> 0 : acknowledged);
			value[m] = 0;
			range[m] = 0
		};
		replicate(m, t)
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
	atomic { my_term[x] -> before = acknowledged };
	atomic { t = my_term[x]; v = value[x] };
	atomic {
		if
		:: leads[x] && my_term[x] == t || BROKEN == NO_LEASE_IN_READS ->
			/* The value lived all the time. */
			assert(!before || before != acknowledged || v == before);
			assert(!v || v != acknowledged || memory == v)
		:: else		/* no answer */
		fi;
		t = 0; v = 0; before = 0
	}
}

/* A get: the master looks, and checks its lease after the request came; the answer leaves, however late. */
proctype reader() {
	byte t, v, before;

	do
	:: read(0)
	:: read(1)
#if MASTERS > 2
	:: read(2)
#endif
	od
}

/* The lease ends: by the leader's clock, then by the store's. */
proctype clock() {
	do
	:: atomic { leader != NONE && term < TERMS -> leads[leader] = false }
	:: atomic { leader != NONE && !leads[leader] -> leader = NONE }
	:: atomic { leader == NONE && term == TERMS -> break }
	od
}

/* kill -9 of any master, KILLS times; it starts again at once, as a standby. */
proctype killer() {
	byte n;

	do
	:: atomic { n < KILLS -> life[0]++; leads[0] = false; n++ }
	:: atomic { n < KILLS -> life[1]++; leads[1] = false; n++ }
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
