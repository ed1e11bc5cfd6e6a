package bench

import (
	"context"
)

// Sparse measures many operations with one event each, producers live: there is
// nothing to batch within a lane.
func Sparse(ctx context.Context) (*Report, error) {
	s, err := startSystem(ctx)
	if err != nil {
		return nil, err
	}
	defer s.stop()
	d := &deliveryBench{system: s, load: load{operations: 20000, events: 1, size: 1024, path: "/hook", prefix: "op"}}
	r := newReport("sparse")
	runs := map[string][]Figures{}
	names := []string{"direct", "asynq_live", "gantry_live"}
	for rep := range repetitions {
		for _, name := range names {
			f, err := d.run(ctx, name)
			if err != nil {
				return nil, err
			}
			note("sparse %d/%d %-12s %8.0f deliveries/s, %.0f lost", rep+1, repetitions, name, f["per_second"], f["lost"])
			runs[name] = append(runs[name], f)
		}
	}
	for _, name := range names {
		r.Contenders[name] = mergeMedians(runs[name])
	}
	r.Figures["live_ratio"] = r.Contenders["gantry_live"]["per_second"] / r.Contenders["asynq_live"]["per_second"]
	for _, f := range runs["gantry_live"] {
		r.Figures["lost"] += f["lost"]
	}
	r.Targets = map[string]Target{"live_ratio": AtLeast(1.3), "lost": AtMost(0)}
	r.judge()
	return r, nil
}
