// Package servers starts private, real servers for tests and benchmarks: a
// redis-server and a PostgreSQL, each on a free loopback port, in a temporary
// directory of its own, ended together with the process that started it.
//
// Nothing here is part of a running Gantry; only tests and the bench command
// import it. A server that cannot be had is an error, never a reason to skip.
package servers
