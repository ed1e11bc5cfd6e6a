package enrich

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The defaults of PostgresConfig.
const (
	DefaultPostgresQuery            = "SELECT email FROM users WHERE id = $1"
	DefaultPostgresStatementTimeout = 2 * time.Second
)

// lostServerGrace is added to the statement timeout for the wait on this side,
// which ends a lookup whose server fell silent.
const lostServerGrace = 3 * time.Second

// errPostgresSilent is the cause of a lookup that the database never answered.
var errPostgresSilent = errors.New("database does not answer")

// PostgresConfig is what a Postgres directory needs.
type PostgresConfig struct {
	// DSN is a connection URL or keyword string, as libpq reads it. Required.
	DSN string
	// Query has one parameter, the user id, and gives one column, the email; ""
	// means DefaultPostgresQuery. The id is sent as text and read as the type that
	// the query compares it with, so text, uuid and integer columns need no cast.
	Query string
	// StatementTimeout is enforced by the database; 0 means
	// DefaultPostgresStatementTimeout.
	StatementTimeout time.Duration
	// MaxConnections bounds the lookups that run at a time; 0 means 4.
	MaxConnections int
}

// Postgres finds emails in a PostgreSQL database with one read-only query. Make
// one with NewPostgres.
type Postgres struct {
	pool  *pgxpool.Pool
	query string
	limit time.Duration
}

// NewPostgres returns a directory that connects at the first lookup. The error
// is a refused DSN; it never holds the password.
func NewPostgres(ctx context.Context, config PostgresConfig) (*Postgres, error) {
	if config.Query == "" {
		config.Query = DefaultPostgresQuery
	}
	if config.StatementTimeout < time.Millisecond {
		if config.StatementTimeout != 0 {
			return nil, fmt.Errorf("configure postgres: statement timeout %s is under 1ms", config.StatementTimeout)
		}
		config.StatementTimeout = DefaultPostgresStatementTimeout
	}
	if config.MaxConnections == 0 {
		config.MaxConnections = 4
	}
	settings, err := pgxpool.ParseConfig(config.DSN)
	if err != nil {
		return nil, fmt.Errorf("configure postgres: %w", err)
	}
	settings.MaxConns = int32(config.MaxConnections)
	parameters := settings.ConnConfig.RuntimeParams
	parameters["statement_timeout"] = strconv.FormatInt(config.StatementTimeout.Milliseconds(), 10)
	parameters["default_transaction_read_only"] = "on"
	if parameters["application_name"] == "" {
		parameters["application_name"] = "gantry"
	}
	pool, err := pgxpool.NewWithConfig(ctx, settings)
	if err != nil {
		return nil, fmt.Errorf("configure postgres: %w", err)
	}
	return &Postgres{pool: pool, query: config.Query, limit: config.StatementTimeout + lostServerGrace}, nil
}

// Email implements Directory. No row, a NULL, and an id that cannot be a value
// of the compared column all mean that there is no email.
func (p *Postgres) Email(ctx context.Context, userID string) (email string, found bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, errPostgresSilent)
	defer cancel()
	var value *string
	err = p.pool.QueryRow(ctx, p.query, userID).Scan(&value)
	switch {
	case errors.Is(err, pgx.ErrNoRows), foreignID(err):
		return "", false, nil
	case err != nil && errors.Is(context.Cause(ctx), errPostgresSilent):
		return "", false, fmt.Errorf("query email: %w", errPostgresSilent)
	case err != nil:
		return "", false, fmt.Errorf("query email: %w", err)
	case value == nil:
		return "", false, nil
	}
	return *value, true, nil
}

// Close ends the connections, after the lookups that use them.
func (p *Postgres) Close() { p.pool.Close() }

// foreignID reports whether the database refused the id itself: it is no uuid
// or integer, or too large, or has a byte that no text may have.
func foreignID(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) {
		return false
	}
	switch refused.Code {
	case "22P02", "22003", "22021":
		return true
	}
	return false
}
