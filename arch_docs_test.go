package gantry_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	markdownLink  = regexp.MustCompile(`\]\(<?([^)\s>]+)`)
	markdownFence = regexp.MustCompile("(?ms)^```.*?^```")
	makeTarget    = regexp.MustCompile(`(?m)^([a-z][a-z0-9/_-]*):(.*)$`)
)

// TestDocumentLinks follows every relative link of the documents.
func TestDocumentLinks(t *testing.T) {
	documents := 0
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && name != "." && (entry.Name()[0] == '.' || entry.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}
		documents++
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		for _, target := range links(string(text)) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(name), target)); err != nil {
				t.Errorf("%s links to %s, which does not exist", name, target)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("read the documents: %v", err)
	}
	if documents == 0 {
		t.Fatalf("found no documents: the test does not see the module")
	}
}

// links returns the relative targets in a document, without code blocks,
// fragments and links to elsewhere.
func links(document string) (targets []string) {
	document = markdownFence.ReplaceAllString(document, "")
	for _, match := range markdownLink.FindAllStringSubmatch(document, -1) {
		target, _, _ := strings.Cut(match[1], "#")
		if target != "" && !strings.Contains(target, ":") {
			targets = append(targets, target)
		}
	}
	return targets
}

func TestLinksOfADocument(t *testing.T) {
	got := strings.Join(links("[a](x.md) [b](y/z.md#part) [c](#here) [d](https://h/x)\n```\n[e](code.md)\n```\n![f](p.svg)"), " ")
	if want := "x.md y/z.md p.svg"; got != want {
		t.Fatalf("links are %q, want %q", got, want)
	}
}

// TestMakeTargetsAreExplained keeps make help complete.
func TestMakeTargetsAreExplained(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatalf("read the Makefile: %v", err)
	}
	targets := makeTarget.FindAllStringSubmatch(string(text), -1)
	if len(targets) < 10 {
		t.Fatalf("found %d targets: the test does not see them", len(targets))
	}
	for _, target := range targets {
		if !strings.Contains(target[2], "## ") {
			t.Errorf("target %s has no ## text", target[1])
		}
	}
}
