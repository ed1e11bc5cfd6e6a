package compat

import (
	"errors"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	day = 24 * time.Hour
	// longest bounds every wait, so that no sum of durations overflows.
	longest = 366 * day
)

var errDuration = errors.New("want a duration such as 50s, 5m or 1d10h30m")

// parseDuration reads QStash's durations: numbers with d, h, m or s, the greater
// units first or not, at most a year in all.
func parseDuration(text string) (time.Duration, error) {
	units := map[byte]time.Duration{'d': day, 'h': time.Hour, 'm': time.Minute, 's': time.Second}
	var total time.Duration
	for rest := text; rest != "" || text == ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits == 0 || digits == len(rest) {
			return 0, errDuration
		}
		count, err := strconv.ParseInt(rest[:digits], 10, 64)
		unit, known := units[rest[digits]]
		if err != nil || !known || count > int64(longest/unit) {
			return 0, errDuration
		}
		if total += time.Duration(count) * unit; total > longest {
			return 0, errDuration
		}
		rest = rest[digits+1:]
	}
	return total, nil
}

// seconds makes a duration of a number of seconds, within 0 and longest.
func seconds(count float64) time.Duration {
	if math.IsNaN(count) || count <= 0 {
		return 0
	}
	return time.Duration(min(count, longest.Seconds()) * float64(time.Second))
}

// backoff is the wait before retry n, counted from 1, where neither the message
// nor the receiver says something else.
func backoff(n int) time.Duration {
	return seconds(min(day.Seconds(), math.Exp(2.5*float64(n))))
}

// pacingHeaders are the headers by which a receiver slows QStash down, in the
// order in which they are looked at.
var pacingHeaders = []string{"Retry-After", "X-Ratelimit-Reset", "X-Ratelimit-Reset-Requests", "X-Ratelimit-Reset-Tokens"}

// pacing returns the wait that a receiver asked for. More than a day is not
// listened to.
func pacing(header http.Header, now time.Time) (time.Duration, bool) {
	for _, name := range pacingHeaders {
		value := strings.TrimSpace(header.Get(name))
		if value == "" {
			continue
		}
		if wait, ok := parsePacing(value, now); ok && wait <= day {
			return max(wait, 0), true
		}
	}
	return 0, false
}

// parsePacing reads seconds, a date of HTTP, or a duration such as 6m5s.
func parsePacing(value string, now time.Time) (time.Duration, bool) {
	if count, err := strconv.ParseFloat(value, 64); err == nil {
		return seconds(count), !math.IsNaN(count)
	}
	if at, err := http.ParseTime(value); err == nil {
		return at.Sub(now), true
	}
	wait, err := time.ParseDuration(value)
	return wait, err == nil
}
