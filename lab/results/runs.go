package main

// run is one of the large runs, with the command that a reader would type in the folder of
// the repository.
type run struct {
	name, command string
	figures       []figure
}

type figure struct{ name, pattern string }

// runs returns all runs in the order of the page.
func runs() []run {
	return []run{
		{"model", "make -C spec model", []figure{
			{"states reached, none with a violation", `^payment\.pml +(\S+) states in .* no violation$`},
			{"", `^([A-Z_]+) +\S+ states in .*, (violates: .*)$`},
		}},
		{"traces", "make -C lab traces", []figure{
			{"histories replayed", `^(\d+) traces, `},
			{"actions, each followed by a comparison", ` traces, (\d+) actions`},
		}},
		{"crash", "make -C lab crash", []figure{
			{"cases", `^crash matrix: (\d+) cases`},
			{"cases that failed", `^crash matrix: .* (\d+) failed`},
			{"mutants detected", `^crash mutants: (.*) caught$`},
		}},
		{"soak", "make -C lab soak", []figure{
			{"", `^(\w[\w:, -]*?) {2,}(\S.*)$`},
		}},
		{"steady", "make -C lab steady", []figure{
			{"", `^(\w[\w:, -]*?) {2,}(\S.*)$`},
		}},
		{"contract-fuzz", "make -C lab contract-fuzz", []figure{
			{"requests", `^(\d+) requests, `},
			{"paid orders", ` (\d+) paid orders, `},
			{"checks besides those of each response", ` (\d+) checks besides`},
			{"kinds of violations", ` (\d+) kinds of violations$`},
		}},
		{"fuzz", "make fuzz", []figure{
			{"", `^(Fuzz\w+), for .*\n(?:fuzz: .*\n)*fuzz: elapsed: \S+ (?:execs: )?(\d+|gathering.*)`},
		}},
		{"conformance", "make -C spec conformance-check", []figure{
			{"level at which the API conforms", `conforms at level (\d)`},
			{"clauses that pass", `^(\d+) pass, `},
			{"MUST clauses that fail", ` (\d+) MUST and `},
			{"other clauses that fail", ` (\d+) SHOULD or MAY fail`},
			{"clauses that were not checked", ` (\d+) not exercised, `},
			{"clauses that cannot be observed from outside", ` (\d+) not observable`},
		}},
		{"conformance-broken", "make -C spec conformance-broken-check", []figure{
			{"broken servers detected", `^broken servers: (.*) detected$`},
		}},
		{"replication", "make -C lab replication-check", []figure{
			{"synchronous standby: acknowledged orders", `: (\d+) acknowledged orders, none lost`},
			{"asynchronous standby: acknowledged orders that were lost", ` (\d+ of \d+) acknowledged orders were lost`},
			{"charges for these orders after their retries", ` (\d+) charges after their retries`},
		}},
		{"patroni", "make -C lab patroni-check", []figure{
			{"versions", `^Testing (.*) …$`},
			{"leaders killed under load", `(\d+) kills, \d+ pg_rewind`},
			{"seconds from the kill to the next order", `from the kill to the next order: (.*);`},
			{"leaders paused and resumed", `from the pause to the next order`},
			{"orders, each with one charge, one receipt and one response", `orders: (\d+); acknowledged`},
			{"asynchronous standbys: acknowledged orders lost, and listed", ` (\d+ of \d+) acknowledged orders were lost`},
		}},
		{"citus", "make -C lab citus-check", []figure{
			{"tests that passed", `^--- PASS: `},
			{"orders while their shards moved", ` (\d+) orders during`},
			{"moves of their shards", ` during (\d+) moves`},
			{"orders while a worker was killed three times", ` (\d+) orders with three kills`},
		}},
	}
}
