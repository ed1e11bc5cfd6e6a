package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"go.yaml.in/yaml/v3"
)

var errAfterEnd = errors.New("text after the end of the document")

// jsonTree parses text into the nodes that a YAML file would give, for their
// lines alone: the values are read from the text itself.
func jsonTree(text []byte) (*yaml.Node, error) {
	p := treeParser{text: text, decoder: json.NewDecoder(bytes.NewReader(text)), line: 1}
	p.decoder.UseNumber()
	root, err := p.value(0)
	if err != nil {
		return nil, err
	}
	if _, err := p.decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errAfterEnd
	}
	return root, nil
}

type treeParser struct {
	text    []byte
	decoder *json.Decoder
	counted int64 // offset up to which line has been counted
	line    int
}

// token returns the next token and the line on which it ends, which is where it
// starts too: no JSON token spans lines.
func (p *treeParser) token() (json.Token, int, error) {
	token, err := p.decoder.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	offset := p.decoder.InputOffset()
	p.line += bytes.Count(p.text[p.counted:offset], []byte("\n"))
	p.counted = offset
	return token, p.line, err
}

func (p *treeParser) value(depth int) (*yaml.Node, error) {
	if depth > maxHooksDepth {
		return nil, errTooDeep
	}
	token, line, err := p.token()
	if err != nil {
		return nil, err
	}
	node := &yaml.Node{Kind: yaml.ScalarNode, Line: line, Value: fmt.Sprint(token)}
	switch token {
	case json.Delim('['):
		node.Kind = yaml.SequenceNode
	case json.Delim('{'):
		node.Kind = yaml.MappingNode
	default:
		return node, nil
	}
	for p.decoder.More() {
		if node.Kind == yaml.MappingNode {
			key, line, err := p.token()
			if err != nil {
				return nil, err
			}
			node.Content = append(node.Content, &yaml.Node{Kind: yaml.ScalarNode, Line: line, Value: fmt.Sprint(key)})
		}
		member, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, member)
	}
	_, _, err = p.token()
	return node, err
}
