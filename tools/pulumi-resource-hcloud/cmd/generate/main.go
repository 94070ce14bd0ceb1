// Command generate writes schema.json and bridge-metadata.json anew.
package main

import (
	"context"

	provider "fleet.invalid/tools/pulumi-resource-hcloud"

	pftfgen "github.com/pulumi/pulumi-terraform-bridge/v3/pkg/pf/tfgen"
)

func main() {
	pftfgen.MainWithMuxer(provider.Name, provider.Info(context.Background()))
}
