# SPDX-License-Identifier: Apache-2.0
# prose.pl [ROOM...] - the counting part of prose.sh.
use strict;
use warnings;

my @rooms = qw(common proto meta tiers engine client node master mcfs tools python include init tests);
my %wanted = map { $_ => 1 } @ARGV;
my $list = $ENV{PROSE_LIST};
my (%count, %total);

# "what" is standard English as the object of one of these verbs.
my $say = qr/(?:says?|said|tells?|shows?|shown|knows?|known|decides?|see|describes?|prints?|reports?|defines?|determines?|checks?|
	explains?|lists?|asks?|matter|find|out|learns?|records?|states?|no|on|about|of|whatever)/xi;
my $reader = qr/(?:users?|operators?|people|persons?|readers?|developers?|administrators?|integrators?|stranger|reviewers?|those|anyone|others)/i;

# The first banned pattern in a text, or "".
sub banned {
	my ($text) = @_;
	(my $t = $text) =~ s/\s+/ /g;
	$t =~ s/`[^`]*`|"[^"]*"|\{[^{}]*\}//g;
	while ($t =~ /(\S*)\s*\b([Ww]ho|[Ww]hoever|[Ww]hom)\b/g) {
		return $2 unless $1 =~ /^\W*$reader\W*$/;
	}
	while ($t =~ /(\S*)\s*\b[Ww]hat(?!ever)\b(\s+(?:to|else))?/g) {
		next if $2;
		my $before = $1;
		return "what" unless $before =~ /^\W*$say$/ && $before !~ /^\W*(?:of|on|about|no|out)$/i;
	}
	return $1 if $t =~ /\b((?:some|no|any|every)body|at the most|all the same|so many|for so long|that were all|belongs? into)\b/i;
	return "";
}

# A rule of its own with its own counts; @hit is empty if the text keeps it.
sub rule {
	my ($room, $kind, $file, $line, $text, @hit) = @_;
	$total{$room}{$kind}++;
	return unless @hit;
	$count{$room}{$kind}++;
	return unless $list && (!%wanted || $wanted{$room});
	$text =~ s/\s+/ /g;
	print "$file:$line: $kind: [$hit[0]] ", substr($text, 0, 300), "\n";
}

sub note {
	my ($room, $kind, $file, $line, $text) = @_;
	my $words = () = $text =~ /[A-Za-z]{2,}/g;
	return if $kind eq 'comment' && $words < 5;
	return if $kind eq 'text' && $words < 3;
	$total{$room}{$kind}++;
	my $hit = banned($text) or return;
	$count{$room}{$kind}++;
	return unless $list && (!%wanted || $wanted{$room});
	$text =~ s/\s+/ /g;
	print "$file:$line: $kind: [$hit] ", substr($text, 0, 300), "\n";
}

sub c_file {
	my ($room, $file, $s) = @_;
	my $line = 1;
	my ($run, $run_line) = ('', 0);
	my $flush = sub {
		note($room, 'text', $file, $run_line, $run) if $run ne '' && $room ne 'tests';
		$run = '';
	};
	while ($s =~ m{\G(?:(/\*.*?\*/)|(//[^\n]*)|("(?:[^"\\\n]|\\.)*")|('(?:[^'\\\n]|\\.)*')|(\s+)|([^/"'\s]+|.))}gsc) {
		my $whole = $&;
		if (defined $1 || defined $2) {
			$flush->();
			my $text = $whole;
			$text =~ s{^/\*+|\*/$|^//}{}g;
			$text =~ s/^\s*\*//mg;
			note($room, 'comment', $file, $line, $text);
			# A fragment whose noun is somewhere else in the code.
			rule($room, 'opening', $file, $line, $text, $text =~ /^\s*(of|by|from)\b/i) if $room ne 'tests';
		} elsif (defined $3) {
			$run_line = $line if $run eq '';
			$run .= substr($3, 1, -1);
		} elsif (!defined $5) {
			$flush->() unless $whole =~ /^PRI/;
		}
		$line += $whole =~ tr/\n//;
	}
	$flush->();
	names($file, $s) if $room eq 'tests';
	statics($room, $file, $s) if $room ne 'tests';
}

# A static function carries its file's noun, so that stack traces and grep are unambiguous.
sub statics {
	my ($room, $file, $s) = @_;
	my %seen;
	while ($s =~ /^(?:__attribute__\(\([^\n]*?\)\)\s+)?static\s[\w \t*]*?\b([a-z]\w*)\(/mg) {
		my ($name, $line) = ($1, 1 + (substr($s, 0, $-[0]) =~ tr/\n//));
		next if $seen{$name}++ || $name eq 'main';
		rule($room, 'static', $file, $line, $name, $name =~ /^([a-z0-9]+)$/);
	}
}

# Names of test functions are specifications.
sub names {
	my ($file, $s) = @_;
	while ($s =~ /^(?:static )?void ([a-z]\w*)\(void \*\*/mg) {
		(my $words = $1) =~ tr/_/ /;
		$total{tests}{name}++;
		my $hit = banned($words) or next;
		$count{tests}{name}++;
		print "$file: name: [$hit] $1\n" if $list && (!%wanted || $wanted{tests});
	}
}

# Comments of scripts and fragments: runs of lines that begin with '#'.
sub hash_file {
	my ($room, $file, $s) = @_;
	my ($run, $from, $line) = ('', 0, 0);
	for (split /\n/, $s) {
		$line++;
		if (/^\s*#(?!!)(?::?)(.*)/) {
			$from = $line if $run eq '';
			$run .= " $1";
			next;
		}
		note($room, 'comment', $file, $from, $run) if $run ne '';
		$run = '';
		if (/\s#\s(.*)/) { note($room, 'comment', $file, $line, $1) }
	}
	note($room, 'comment', $file, $from, $run) if $run ne '';
}

sub py_file {
	my ($room, $file, $s) = @_;
	hash_file($room, $file, $s);
	while ($s =~ /(\w*)("""|''')(.*?)\2|"((?:[^"\\\n]|\\.)*)"/gs) {
		my ($doc, $text) = ($3, $4);
		my $line = 1 + (substr($s, 0, $-[0]) =~ tr/\n//);
		if (defined $doc) { note($room, 'comment', $file, $line, $doc) }
		elsif ($room ne 'tests') { note($room, 'text', $file, $line, $text) }
	}
}

# Documents and manual pages: paragraphs, without blocks of code.
sub doc_file {
	my ($room, $file, $s) = @_;
	$s =~ s/^```.*?^```/my $x = $&; $x =~ tr#\n##cd; $x/gmse if $file =~ /\.md$/;
	$s =~ s/\\f[A-Z]//g;
	my $line = 1;
	for my $part (split /(\n(?:\s*\n|(?=[-|.]|\d+\. )))/, $s) {
		note($room, 'text', $file, $line, $part);
		$line += $part =~ tr/\n//;
	}
}

sub slurp {
	my ($file) = @_;
	open my $f, '<:raw', $file or die "$file: $!\n";
	local $/;
	return scalar <$f>;
}

for my $room (@rooms) {
	for my $file (sort split /\n/, `find $room -type f -not -path '*/corpus/*' -not -path '*/golden/*' -not -path '*/__pycache__/*'`) {
		# These write the words.
		next if $file =~ m{^tests/lint/(prose\.|words\.sh)|\.map$};
		if ($file =~ /\.(c|h|def)$/) { c_file($room, $file, slurp($file)) }
		elsif ($file =~ /\.pyi?$/) { py_file($room, $file, slurp($file)) }
		elsif ($file =~ /\.(sh|am)$/) { hash_file($room, $file, slurp($file)) }
		elsif ($file =~ m{^init/}) { hash_file($room, $file, slurp($file)) }
		elsif ($file =~ m{README$}) { doc_file($room eq 'tests' ? 'tests' : 'docs', $file, slurp($file)) }
	}
}
doc_file('docs', $_, slurp($_)) for grep { -e && !m{docs/STYLE.md} } 'README.md', 'NEWS', glob('docs/*.md');
doc_file('man', $_, slurp($_)) for grep { !/\.am$/ } glob('man/*.in'), glob('man/*.[1-9]');
hash_file('docs', $_, slurp($_)) for 'quickstart', 'Makefile.am', 'packages.txt';
exit 0 if $list;

# prose.allowed: "room kind count"; what is not there is 0.
my %allowed;
open my $f, '<', 'tests/lint/prose.allowed' or die "tests/lint/prose.allowed: $!\n";
while (<$f>) {
	$allowed{$1}{$2} = $3 if /^(\w+)\s+(\w+)\s+(\d+)/;
}
my $bad = 0;
for my $room (@rooms, 'docs', 'man') {
	for my $kind (sort keys %{ $total{$room} || {} }) {
		my ($n, $of, $may) = ($count{$room}{$kind} || 0, $total{$room}{$kind}, $allowed{$room}{$kind} || 0);
		printf "%-8s %-8s %4d of %5d (%.1f %%), %d allowed\n", $room, $kind, $n, $of, 100 * $n / $of, $may;
		if ($n > $may) {
			print "  more than allowed: tests/lint/prose.sh -l $room shows them; docs/STYLE.md says how to write\n";
			$bad = 1;
		} elsif ($n < $may) {
			print "  better than allowed: write \"$room $kind $n\" into tests/lint/prose.allowed\n";
			$bad = 1;
		}
	}
}
my $before = `git show HEAD:tests/lint/prose.allowed 2>/dev/null`;
while ($before =~ /^(\w+)\s+(\w+)\s+(\d+)/mg) {
	next if ($allowed{$1}{$2} || 0) <= $3;
	print "tests/lint/prose.allowed: $1 $2 went up from $3 to $allowed{$1}{$2}\n";
	$bad = 1;
}
exit $bad;
