package enrich_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/gantry-hooks/gantry/enrich"
	"github.com/gantry-hooks/gantry/internal/servers/servertest"
)

const schema = `
CREATE TABLE users (id text PRIMARY KEY, email text);
INSERT INTO users VALUES ('u-ada', 'ada@corp.test'), ('u-null', NULL), ('u-blank', ''), ('42', 'text@corp.test');
CREATE TABLE accounts (id uuid PRIMARY KEY, email varchar(80));
INSERT INTO accounts VALUES ('0190b5d4-7c3e-7d20-8f65-0c1d2e3f4a5b', 'uuid@corp.test');
CREATE TABLE members (id integer PRIMARY KEY, email text);
INSERT INTO members VALUES (42, 'number@corp.test');
`

func openPostgres(t *testing.T, config enrich.PostgresConfig) *enrich.Postgres {
	t.Helper()
	p, err := enrich.NewPostgres(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	server := servertest.Postgres(t)
	conn, err := pgx.Connect(t.Context(), server.SocketDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), schema); err != nil {
		t.Fatal(err)
	}
	t.Run("emails", func(t *testing.T) { postgresEmails(t, server.DSN()) })
	t.Run("the database stops a slow query", func(t *testing.T) { postgresSlowQuery(t, server.DSN()) })
	t.Run("the query cannot write", func(t *testing.T) { postgresReadOnly(t, server.DSN()) })
	t.Run("a slow query costs the payload its email only", func(t *testing.T) {
		p := openPostgres(t, enrich.PostgresConfig{DSN: server.DSN(), Query: slowQuery, StatementTimeout: 20 * time.Millisecond})
		b := newBuilder(t, enrich.Config{Directory: p})
		if got := mustEmail(t, b, "u-ada"); got != "none" {
			t.Fatalf("email %q, want none", got)
		}
	})
	t.Run("an email reaches the payload", func(t *testing.T) {
		b := newBuilder(t, enrich.Config{Directory: openPostgres(t, enrich.PostgresConfig{DSN: server.DSN()})})
		if got := mustEmail(t, b, "u-ada"); got != "ada@corp.test" {
			t.Fatalf("email %q", got)
		}
	})
}

func postgresEmails(t *testing.T, dsn string) {
	type answer struct {
		Email string
		Found bool
	}
	none := answer{}
	const uuids, numbers = "SELECT email FROM accounts WHERE id = $1", "SELECT email FROM members WHERE id = $1"
	for _, c := range []struct {
		name, query, user string
		want              answer
	}{
		{"default query", "", "u-ada", answer{"ada@corp.test", true}},
		{"no row", "", "u-ghost", none},
		{"NULL", "", "u-null", none},
		{"empty email", "", "u-blank", answer{"", true}},
		{"an id is never part of the query", "", "' OR '1'='1", none},
		{"a byte that text cannot have", "", "u\x00ada", none},
		{"digits in a text column", "", "42", answer{"text@corp.test", true}},
		{"uuid column", uuids, "0190b5d4-7c3e-7d20-8f65-0c1d2e3f4a5b", answer{"uuid@corp.test", true}},
		{"uuid column, no uuid", uuids, "u-ada", none},
		{"integer column", numbers, "42", answer{"number@corp.test", true}},
		{"integer column, no number", numbers, "u-ada", none},
		{"integer column, out of range", numbers, "99999999999999", none},
		{"cast in the query", "SELECT email FROM members WHERE id::text = $1", "42", answer{"number@corp.test", true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := openPostgres(t, enrich.PostgresConfig{DSN: dsn, Query: c.query})
			got, found, err := p.Email(t.Context(), c.user)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, answer{got, found}); diff != "" {
				t.Fatalf("answer (-want +got):\n%s", diff)
			}
		})
	}
}

const slowQuery = "SELECT email FROM users, pg_sleep(60) WHERE id = $1"

func postgresSlowQuery(t *testing.T, dsn string) {
	p := openPostgres(t, enrich.PostgresConfig{DSN: dsn, Query: slowQuery, StatementTimeout: 20 * time.Millisecond})
	_, found, err := p.Email(t.Context(), "u-ada")
	var refused *pgconn.PgError
	const queryCanceled = "57014"
	if found || !errors.As(err, &refused) || refused.Code != queryCanceled {
		t.Fatalf("slow query gave %v, %v; want the database's statement timeout", found, err)
	}
}

func postgresReadOnly(t *testing.T, dsn string) {
	p := openPostgres(t, enrich.PostgresConfig{DSN: dsn, Query: "UPDATE users SET email = 'x' WHERE id = $1 RETURNING email"})
	_, _, err := p.Email(t.Context(), "u-ada")
	var refused *pgconn.PgError
	const readOnlyTransaction = "25006"
	if !errors.As(err, &refused) || refused.Code != readOnlyTransaction {
		t.Fatalf("a writing query gave %v", err)
	}
}

func TestPostgresErrorsKeepThePassword(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	// Nothing listens on port 1 of loopback.
	p := openPostgres(t, enrich.PostgresConfig{DSN: "postgres://gantry:" + secret + "@127.0.0.1:1/users?sslmode=disable"})
	_, _, err := p.Email(t.Context(), "u-ada")
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Fatalf("an unreachable database gave %v", err)
	}
	for _, dsn := range []string{
		"postgres://gantry:" + secret + "@127.0.0.1:port/users",
		"postgres://gantry:" + secret + "@127.0.0.1/users?sslmode=nonsense",
		"postgres://gantry:" + secret + "@[::1/users",
		"user=gantry password=" + secret + " port=x",
		"user=gantry password='" + secret,
	} {
		if _, err := enrich.NewPostgres(context.WithoutCancel(t.Context()), enrich.PostgresConfig{DSN: dsn}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("refused DSN gave %v", err)
		}
	}
}

func TestPostgresGivesUpOnASilentServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	p := openPostgres(t, enrich.PostgresConfig{
		DSN: "postgres://gantry@" + listener.Addr().String() + "/users?sslmode=disable", StatementTimeout: time.Millisecond,
	})
	if _, found, err := p.Email(t.Context(), "u-ada"); found || err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("silent server gave %v, %v; want an error that says so", found, err)
	}
}

func TestNewPostgresRefusesBadTimeouts(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{-1, time.Microsecond} {
		if _, err := enrich.NewPostgres(t.Context(), enrich.PostgresConfig{DSN: "postgres://127.0.0.1:1/x", StatementTimeout: timeout}); err == nil {
			t.Errorf("statement timeout %s was accepted", timeout)
		}
	}
}
