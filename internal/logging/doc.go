// Package logging holds what our packages do alike with the logger they are
// handed, or not handed.
package logging
