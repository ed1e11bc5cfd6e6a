// Package enrich builds the JSON payload that a webhook receives from an event,
// and adds the email of the payload's user to it (docs/behaviour.md §10, §11).
//
// A payload is built anew for each attempt: top-level keys are sorted, the last
// of duplicate keys wins, and nested bytes stay as they came, so that the bytes
// that are signed are the bytes that are sent. An email is never that of
// another user, and a lookup that fails costs the payload its email only.
//
// Emails come from a Directory. Postgres, HTTP and File are the ones at hand;
// this package is the only one that may import a database driver.
package enrich
