package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// field is one setting of a Config, found through its struct tags, which are
// the only list of the settings there is.
type field struct {
	path  string // dotted YAML keys
	env   string // name of its variable
	owner string // struct type and field, for the reference
	name  string
	value reflect.Value // settable
}

// fieldsOf returns the settings of c in the order of the structs.
func fieldsOf(c *Config) []field {
	return appendFields(nil, "", reflect.ValueOf(c).Elem())
}

func appendFields(all []field, prefix string, section reflect.Value) []field {
	for i := range section.NumField() {
		member := section.Type().Field(i)
		path := prefix + member.Tag.Get("yaml")
		if isSection(member.Type) {
			all = appendFields(all, path+".", section.Field(i))
			continue
		}
		all = append(all, field{
			path:  path,
			env:   member.Tag.Get("env"),
			owner: section.Type().Name(),
			name:  member.Name,
			value: section.Field(i),
		})
	}
	return all
}

func isSection(t reflect.Type) bool { return t.Kind() == reflect.Struct }

func (f field) list() bool { return f.value.Kind() == reflect.Slice }

// set parses text into the field. Its problem names no value, because the
// value may be a secret in the wrong place.
func (f field) set(text string) *SettingError {
	if f.list() {
		f.setList(splitList(text))
		return nil
	}
	switch target := f.value.Addr().Interface().(type) {
	case *time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil {
			return f.problem("is not a duration", "write a number with a unit, such as 500ms, 5s or 24h")
		}
		*target = d
	case *Size:
		size, ok := parseSize(text)
		if !ok {
			return f.problem("is not a size", "write a number of bytes, or one with a unit, such as 512KiB or 1MiB")
		}
		*target = size
	case *int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return f.problem("is not a whole number", "write digits only")
		}
		*target = n
	case *float64:
		n, err := strconv.ParseFloat(text, 64)
		if err != nil || n != n || n-n != 0 {
			return f.problem("is not a number", "write a decimal number, such as 0.25")
		}
		*target = n
	default:
		f.value.SetString(text)
	}
	return nil
}

func (f field) setList(items []string) {
	list := reflect.MakeSlice(f.value.Type(), len(items), len(items))
	for i, item := range items {
		list.Index(i).SetString(item)
	}
	f.value.Set(list)
}

func (f field) problem(wrong, right string) *SettingError {
	return &SettingError{Path: f.path, Wrong: wrong, Right: right}
}

// kind names the field's type for people.
func (f field) kind() string {
	switch f.value.Interface().(type) {
	case time.Duration:
		return "duration"
	case Size:
		return "size"
	case int:
		return "whole number"
	case float64:
		return "number"
	case Secret:
		return "secret"
	case []Secret:
		return "list of secrets"
	case []string:
		return "list"
	default:
		return "text"
	}
}

// items returns the field's value as text, secrets masked: one item, or those
// of a list.
func (f field) items() []string {
	if d, ok := f.value.Interface().(time.Duration); ok {
		return []string{shortDuration(d)}
	}
	if !f.list() {
		return []string{fmt.Sprint(f.value.Interface())}
	}
	items := make([]string, f.value.Len())
	for i := range items {
		items[i] = fmt.Sprint(f.value.Index(i).Interface())
	}
	return items
}

// shortDuration writes 24h, not 24h0m0s.
func shortDuration(d time.Duration) string {
	text := d.String()
	if d%time.Minute == 0 && d != 0 {
		text = strings.TrimSuffix(text, "0s")
	}
	if d%time.Hour == 0 && d != 0 {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// splitList splits the text of a variable or flag at commas, and drops spaces
// around items and empty items.
func splitList(text string) []string {
	items := []string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}
