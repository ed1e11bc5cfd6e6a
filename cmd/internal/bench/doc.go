// Package bench measures Gantry against raw asynq and direct HTTP calls in the
// same run, on private servers that it starts and ends itself. Machines are
// shared and noisy, so what counts are ratios within a run, as medians of three.
package bench
