package enrich

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"go.yaml.in/yaml/v3"
)

// FileConfig is what a File directory needs.
type FileConfig struct {
	// Path names a file that maps user ids to emails: one JSON object when it ends
	// in .json, else one YAML mapping. A null email means none. Required.
	Path string
}

// File finds emails in a file that it holds in memory. Make one with NewFile.
type File struct {
	path   string
	emails atomic.Pointer[map[string]*string]
}

// NewFile reads the file and returns a directory on it.
func NewFile(config FileConfig) (*File, error) {
	f := &File{path: config.Path}
	if err := f.Reload(); err != nil {
		return nil, err
	}
	return f, nil
}

// Reload reads the file again. After an error the earlier content stays in use.
func (f *File) Reload() error {
	content, err := os.ReadFile(f.path)
	if err != nil {
		return fmt.Errorf("read email file: %w", err)
	}
	emails := map[string]*string{}
	if strings.EqualFold(filepath.Ext(f.path), ".json") {
		err = json.Unmarshal(content, &emails)
	} else {
		err = yaml.Unmarshal(content, &emails)
	}
	if err != nil {
		return fmt.Errorf("decode email file %s: %w", f.path, err)
	}
	f.emails.Store(&emails)
	return nil
}

// Email implements Directory.
func (f *File) Email(_ context.Context, userID string) (email string, found bool, err error) {
	value := (*f.emails.Load())[userID]
	if value == nil {
		return "", false, nil
	}
	return *value, true, nil
}
