// Package screen writes for people: it knows whether a writer is a terminal,
// colours only there, and aligns columns. What a program reads is never written
// through it.
package screen

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/gantry-hooks/gantry/tasks"
)

// Style is a way to show a text on a terminal.
type Style string

// The styles, as SGR parameters; Plain changes nothing.
const (
	Plain  Style = ""
	Bold   Style = "1"
	Dim    Style = "2"
	Red    Style = "31"
	Green  Style = "32"
	Yellow Style = "33"
	Cyan   Style = "36"
)

// Theme says how to write to one writer. The zero value writes plain text.
type Theme struct {
	// Terminal says that the writer is a terminal, so that lines may be rewritten.
	Terminal bool
	// Colour says that styles are shown.
	Colour bool
}

// ThemeOf looks at a writer. Colours need a terminal that is not dumb, and
// NO_COLOR, set to anything but nothing, switches them off.
func ThemeOf(w io.Writer, env tasks.Environment) Theme {
	file, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(file.Fd())) {
		return Theme{}
	}
	kind, _ := env("TERM")
	no, _ := env("NO_COLOR")
	return Theme{Terminal: kind != "dumb", Colour: kind != "dumb" && no == ""}
}

// Paint puts text into a style.
func (t Theme) Paint(style Style, text string) string {
	if !t.Colour || style == Plain || text == "" {
		return text
	}
	return "\x1b[" + string(style) + "m" + text + "\x1b[0m"
}

// Cell is one field of a table.
type Cell struct {
	Text  string
	Style Style
}

// Text makes a plain cell.
func Text(text string) Cell { return Cell{Text: text} }

// Number makes a cell of a whole number.
func Number[N int | int64](n N) Cell { return Cell{Text: fmt.Sprint(n)} }

// Table gathers rows and writes them with aligned columns.
type Table struct {
	theme Theme
	rows  [][]Cell
}

// NewTable starts a table with its header.
func NewTable(theme Theme, header ...string) *Table {
	t := &Table{theme: theme}
	cells := make([]Cell, len(header))
	for i, text := range header {
		cells[i] = Cell{text, Dim}
	}
	t.rows = append(t.rows, cells)
	return t
}

// Row adds a row; an empty cell shows as a dash.
func (t *Table) Row(cells ...Cell) {
	for i := range cells {
		cells[i].Text = Clean(cells[i].Text)
		if cells[i].Text == "" {
			cells[i] = Cell{"-", Dim}
		}
	}
	t.rows = append(t.rows, cells)
}

// Write writes the table.
func (t *Table) Write(w io.Writer) error {
	var widths []int
	for _, row := range t.rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell.Text))
		}
	}
	var b strings.Builder
	for _, row := range t.rows {
		for i, cell := range row {
			b.WriteString(t.theme.Paint(cell.Style, cell.Text))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", 2+widths[i]-utf8.RuneCountInString(cell.Text)))
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Clean makes a text of unknown origin harmless on a terminal: a control
// character, which could move the cursor or recolour the screen, becomes '·'.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '·'
		}
		return r
	}, text)
}

// Fit pads text to width, or shortens it to that with an ellipsis.
func Fit(text string, width int) string {
	n := utf8.RuneCountInString(text)
	if n <= width {
		return text + strings.Repeat(" ", width-n)
	}
	return string([]rune(text)[:width-1]) + "…"
}
