package lanetest

import "testing"

// Run checks every transition of the stores that newStore makes.
func Run(t *testing.T, newStore NewStore) { run(t, newStore, false) }

// RunQuick is Run without the cases that take seconds on a slow store.
func RunQuick(t *testing.T, newStore NewStore) { run(t, newStore, true) }

func run(t *testing.T, newStore NewStore, quick bool) {
	groups := []struct {
		name  string
		tests []test
	}{
		{"Append", appendTests},
		{"Claim", claimTests},
		{"Lane", laneTests},
		{"Parked", parkedTests},
		{"Recovery", recoveryTests},
		{"Delay", delayTests},
		{"Waiters", waiterTests},
		{"Dead", deadTests},
		{"Operation", operationTests},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			t.Parallel()
			for _, c := range g.tests {
				if quick && c.slow {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(&bench{TB: t, store: newStore(t, c.opts)})
				})
			}
		})
	}
}

// test is one case of the suite on a store of its own.
type test struct {
	name string
	opts Options
	slow bool
	run  func(b *bench)
}
