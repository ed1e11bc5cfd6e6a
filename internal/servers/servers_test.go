package servers_test

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/gantry-hooks/gantry/internal/servers"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

func connect(t *testing.T, server *servers.Redis) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func TestRedisKeepsDataAcrossKillAndRestart(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{AppendOnly: servers.FsyncAlways})
	ctx := t.Context()
	if err := connect(t, server).Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	addr, pid := server.Addr(), server.Pid()
	server.Kill()
	if err := connect(t, server).Ping(ctx).Err(); err == nil {
		t.Fatal("a killed server answers")
	}
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if got, err := connect(t, server).Get(ctx, "k").Result(); err != nil || got != "v" {
		t.Fatalf("after restart k = %q, %v", got, err)
	}
	if server.Addr() != addr || server.Pid() == pid {
		t.Fatalf("restart moved from %s to %s, pid %d to %d", addr, server.Addr(), pid, server.Pid())
	}
}

func TestRedisWithoutPersistenceForgets(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	ctx := t.Context()
	if err := connect(t, server).Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, server).Get(ctx, "k").Result(); !errors.Is(err, redis.Nil) {
		t.Fatalf("after restart k: %v, want redis.Nil", err)
	}
}

func TestRedisListensOnItsSocket(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{UnixSocket: true, Args: []string{"--maxmemory", "64mb"}})
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket()})
	defer func() { _ = client.Close() }()
	got, err := client.ConfigGet(t.Context(), "maxmemory").Result()
	if err != nil || got["maxmemory"] != "67108864" {
		t.Fatalf("maxmemory over the socket: %v, %v", got, err)
	}
}

func TestRedisReportsProcessorTime(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	client := connect(t, server)
	for {
		if err := client.Eval(t.Context(), "for i = 1, 1e6 do end", nil).Err(); err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		seconds, err := server.CPUSeconds()
		if err != nil {
			t.Fatal(err)
		}
		if seconds > 0 {
			return
		}
	}
}

func TestRedisMissingSaysWhatToDo(t *testing.T) {
	t.Setenv(servers.RedisServerEnv, filepath.Join(t.TempDir(), "redis-server"))
	_, err := servers.StartRedis(t.Context(), servers.RedisOptions{})
	if !errors.Is(err, servers.ErrRedisMissing) {
		t.Fatalf("start without a server: %v, want ErrRedisMissing", err)
	}
}

func TestRedisRefusedArgumentsAreReported(t *testing.T) {
	t.Parallel()
	server, err := servers.StartRedis(t.Context(), servers.RedisOptions{Args: []string{"--no-such-directive", "1"}})
	if err == nil {
		server.Stop()
		t.Fatal("an unknown directive was accepted")
	}
}

func TestRestartReportsALostPort(t *testing.T) {
	t.Parallel()
	server := servertest.PrivateRedis(t, servers.RedisOptions{})
	server.Kill()
	other, err := net.Listen("tcp4", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := server.Restart(t.Context()); err == nil {
		t.Fatal("restart on a taken port succeeded")
	}
}

func TestFlushedClientsDoNotMeet(t *testing.T) {
	t.Parallel()
	a, b := servertest.FlushedClient(t), servertest.FlushedClient(t)
	ctx := t.Context()
	if err := a.Set(ctx, "k", "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Exists(ctx, "k").Result(); err != nil || n != 0 {
		t.Fatalf("k in the other database: %d, %v", n, err)
	}
	options, err := redis.ParseURL(servertest.URL(a))
	if err != nil || options.DB != a.Options().DB || options.Addr != a.Options().Addr {
		t.Fatalf("URL %s: %v", servertest.URL(a), err)
	}
}

func TestPostgresAcceptsConnections(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	if server.DSN() == "" || server.SocketDSN() == "" {
		t.Fatal("no connection URL")
	}
	// SSLRequest is the shortest question that any PostgreSQL answers (N: no TLS here).
	conn, err := net.Dial("tcp4", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, 1)
	if _, err := conn.Read(answer); err != nil || answer[0] != 'N' {
		t.Fatalf("answer %q, %v", answer, err)
	}
	server.Stop()
	if _, err := os.Stat(server.Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("directory after stop: %v", err)
	}
}
