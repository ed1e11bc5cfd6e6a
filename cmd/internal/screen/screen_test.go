package screen_test

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gantry-hooks/gantry/cmd/internal/screen"
)

func TestTableAlignsWhateverTheStyle(t *testing.T) {
	write := func(theme screen.Theme) string {
		table := screen.NewTable(theme, "id", "n", "text")
		table.Row(screen.Cell{Text: "läng", Style: screen.Red}, screen.Number(12), screen.Text("a\x1b[2Jb"))
		table.Row(screen.Text("x"), screen.Cell{}, screen.Text("last"))
		var out bytes.Buffer
		if err := table.Write(&out); err != nil {
			t.Fatalf("write: %v", err)
		}
		return out.String()
	}
	want := "id    n   text\nläng  12  a·[2Jb\nx     -   last\n"
	if diff := cmp.Diff(want, write(screen.Theme{})); diff != "" {
		t.Errorf("plain table (-want +got):\n%s", diff)
	}
	want = "\x1b[2mid\x1b[0m    \x1b[2mn\x1b[0m   \x1b[2mtext\x1b[0m\n\x1b[31mläng\x1b[0m  12  a·[2Jb\nx     \x1b[2m-\x1b[0m   last\n"
	if diff := cmp.Diff(want, write(screen.Theme{Colour: true})); diff != "" {
		t.Errorf("coloured table (-want +got):\n%s", diff)
	}
}

func TestThemeOfWhatIsNoTerminal(t *testing.T) {
	env := func(string) (string, bool) { return "", false }
	if got := screen.ThemeOf(&bytes.Buffer{}, env); got != (screen.Theme{}) {
		t.Fatalf("a buffer has the theme %+v", got)
	}
}

func TestFit(t *testing.T) {
	for text, want := range map[string]string{"ab": "ab  ", "abcd": "abcd", "äbcde": "äbc…", "": "    "} {
		if got := screen.Fit(text, 4); got != want {
			t.Errorf("Fit(%q) is %q, want %q", text, got, want)
		}
	}
}

func TestClean(t *testing.T) {
	if got := screen.Clean("a\nb\x1b[31m\u202ec\u0085d é → ✓"); got != "a·b·[31m·c·d é → ✓" {
		t.Fatalf("cleaned to %q", got)
	}
}
