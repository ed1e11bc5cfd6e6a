package config

import (
	"bytes"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Redacted returns the settings in force as a YAML document with every secret
// masked. It can be read back where no secret is set.
func (c *Config) Redacted() []byte {
	root := &yaml.Node{Kind: yaml.MappingNode}
	for _, f := range fieldsOf(c) {
		section := root
		keys := strings.Split(f.path, ".")
		for _, key := range keys[:len(keys)-1] {
			section = child(section, key)
		}
		section.Content = append(section.Content, scalar(keys[len(keys)-1], false), f.node())
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(root); err != nil {
		// A tree of scalars that this function built itself can always be encoded.
		panic(err)
	}
	return out.Bytes()
}

// child returns the mapping under key, adding it at the end if it is missing.
func child(parent *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(parent.Content); i += 2 {
		if parent.Content[i].Value == key {
			return parent.Content[i+1]
		}
	}
	section := &yaml.Node{Kind: yaml.MappingNode}
	parent.Content = append(parent.Content, scalar(key, false), section)
	return section
}

func (f field) node() *yaml.Node {
	items := f.items()
	if !f.list() {
		return scalar(items[0], f.kind() == "text" || f.kind() == "secret")
	}
	list := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, item := range items {
		list.Content = append(list.Content, scalar(item, true))
	}
	return list
}

// scalar is a node with a plain value; text is tagged as such, so that the
// encoder quotes what would otherwise read as a number or nothing.
func scalar(value string, text bool) *yaml.Node {
	node := &yaml.Node{Kind: yaml.ScalarNode, Value: value}
	if text {
		node.Tag = "!!str"
	}
	return node
}
